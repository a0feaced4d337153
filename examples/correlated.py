"""Correlated against independent noise at equal epsilon: digits, SGD, small batches, many steps.

    python examples/correlated.py --config configs/correlated.toml

One band is independent noise on Poisson batches: DP-SGD. More bands are BandMF on cyclic Poisson
batches. All steps of a run are one compiled loop; nothing of it is released, so it keeps no ledger.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import digits
import jax
import jax.numpy as jnp
import numpy as np
import study

import bk_jax
from bk_jax import privacy, random

Tree = Any


@dataclasses.dataclass(frozen=True)
class Settings:
    """The file `configs/correlated.toml`."""

    epsilon: float
    delta: float
    epochs: float
    batch_size: int
    rows: int  # of a batch, with padding
    width: int
    momentum: float
    bands: tuple[int, ...]
    learning_rates: tuple[float, ...]
    seeds: int

    def plan(self, bands: int, num_examples: int) -> privacy.CorrelatedPlan:
        run = study.Settings(
            self.epsilon, self.delta, self.epochs, self.batch_size, self.rows, 1.0, bands=bands
        )
        return study.correlated_plan(run, num_examples)


def batches(plan: privacy.CorrelatedPlan, rows: int, seed: int) -> np.ndarray:
    """Cyclic Poisson batches `[steps, rows]` of places, filled up with -1; coin flips by NumPy."""
    rng, who = np.random.default_rng(seed), plan.participation
    groups = np.array_split(rng.permutation(plan.num_examples), who.groups)
    out = np.full((plan.steps, rows), -1, np.int32)
    for step in range(plan.steps):
        group = groups[step % who.groups]
        chosen = group[rng.random(len(group)) < who.sampling_probability]
        if len(chosen) > rows:
            raise ValueError(f"a batch has {len(chosen)} examples: rows must be more than {rows}.")
        out[step, : len(chosen)] = chosen
    return out


def trainer(plan: privacy.CorrelatedPlan, momentum: float) -> Callable[..., Tree]:
    """A compiled run: from parameters, data, batches, a key and a learning rate to parameters."""
    grad_fn = bk_jax.dp_value_and_grad(digits.mean_loss, **plan.options())
    private = plan.release(grad_fn)

    @jax.jit
    def train(params: Tree, data: Tree, places: Any, key: jax.Array, rate: Any) -> Tree:
        def step(state: Tree, at: Any) -> tuple[Tree, None]:
            params, velocity, noise = state
            number, place = at
            examples = jax.tree.map(lambda x: x[jnp.maximum(place, 0)], data)
            found = grad_fn.clipped_sums(params, examples, is_padding_example=place < 0)
            keys = jax.random.fold_in(key, number)[None]
            grads, noise = private.release(found.sums, noise, keys=keys, step=number)
            velocity = jax.tree.map(lambda v, g: momentum * v + g, velocity, grads)
            params = jax.tree.map(lambda p, v: p - rate * v, params, velocity)
            return (params, velocity, noise), None

        still = jax.tree.map(jnp.zeros_like, params)
        start = (params, still, private.init(params))
        return jax.lax.scan(step, start, (jnp.arange(plan.steps), places))[0][0]

    return train


def measured(settings: Settings, bands: int) -> list[dict[str, Any]]:
    """For every learning rate, held-out accuracy and loss at the end of every seed's run."""
    data, held_out = jax.device_put(digits.load_data())
    plan = settings.plan(bands, len(data.labels))
    train, rows = trainer(plan, settings.momentum), []
    drawn = [batches(plan, settings.rows, seed) for seed in range(settings.seeds)]
    for rate in settings.learning_rates:
        ends = []
        for seed, places in enumerate(drawn):
            start = digits.init_params(jax.random.key(seed), (64, settings.width, 10))
            params = train(start, data, places, random.key(seed), np.float32(rate))
            ends.append([float(x) for x in digits.evaluate(params, held_out)])
        accuracy, loss = zip(*ends, strict=True)
        row = {"bands": bands, "learning_rate": rate, "epsilon": round(plan.epsilon(), 3)}
        row |= {"steps": plan.steps, "noise_multiplier": round(plan.noise_multiplier, 4)}
        rows.append(row | {"accuracy": accuracy, "loss": loss})
    return rows


def main(argv: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=Path("configs", "correlated.toml"))
    parser.add_argument("--results", type=Path, default=Path("examples", "results"))
    args = parser.parse_args(argv)
    table = tomllib.loads(args.config.read_text())
    settings = study.from_table(Settings, table, str(args.config))
    rows: list[dict[str, Any]] = []
    for bands in settings.bands:
        rows += measured(settings, bands)
        args.results.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(map(json.dumps, rows))
        (args.results / f"{args.config.stem}.json").write_text(f"[\n{lines}\n]\n")
    for row in rows:
        mean, loss = (statistics.mean(row[name]) for name in ("accuracy", "loss"))
        print(f"| {row['bands']} | {row['learning_rate']} | {mean:.3f} | {loss:.3f} |", flush=True)
    return rows


if __name__ == "__main__":
    main()
