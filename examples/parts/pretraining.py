"""Training on the public text, without privacy, once: what came of it is kept in a file."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from parts import gpt

Tree = Any


@dataclasses.dataclass(frozen=True)
class Pretraining:
    """All that decides what comes of it, beside the text."""

    width: int
    layers: int
    heads: int
    length: int
    steps: int
    batch_size: int
    learning_rate: float


def pretrained(path: Path, settings: Pretraining, text: Callable[[], np.ndarray]) -> Tree:
    """Parameters from the file, or from training on the windows that `text` gives."""
    template = gpt.init_params(settings.width, settings.layers, settings.length)
    if path.exists():
        return load(path, settings, template)
    params = train(template, settings, text())
    save(path, settings, params)
    return params


def shuffled(rows: np.ndarray, size: int, steps: int) -> Iterator[np.ndarray]:
    """Batches of a fixed size, in passes over the rows; a rest waits for the next pass."""
    rng = np.random.default_rng(0)
    size, order = min(size, len(rows)), np.zeros(0, np.int64)
    for _ in range(steps):
        if len(order) < size:
            order = np.concatenate([order, rng.permutation(len(rows))])
        yield rows[order[:size]]
        order = order[size:]


def train(params: Tree, settings: Pretraining, rows: np.ndarray) -> Tree:
    """Adam with a warm start and a cosine to zero."""
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, settings.learning_rate, max(1, settings.steps // 20), settings.steps
    )
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.01)
    )

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params: Tree, state: Tree, batch: jax.Array) -> tuple[Tree, Tree, jax.Array]:
        def loss_fn(params: Tree) -> jax.Array:
            return jnp.mean(gpt.losses_fn(params, batch, settings.heads))

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    params = jax.tree.map(jnp.array, params)
    state = optimizer.init(params)
    batches = shuffled(rows, settings.batch_size, settings.steps)
    for number, batch in enumerate(batches, start=1):
        params, state, loss = step(params, state, batch)
        if number % 50 == 0 or number == settings.steps:
            bits = float(loss) / np.log(2)
            print(f"pre-training, step {number}/{settings.steps}: {bits:.3f} bits per byte")
    return jax.tree.map(np.asarray, params)


# --- the file -------------------------------------------------------------------------------------


def save(path: Path, settings: Pretraining, params: Tree) -> None:
    """Complete, or not at all: the name comes last."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.npz")
    arrays = {str(number): leaf for number, leaf in enumerate(jax.tree.leaves(params))}
    np.savez(partial, settings=json.dumps(dataclasses.asdict(settings)), **arrays)
    partial.replace(path)


def load(path: Path, settings: Pretraining, template: Tree) -> Tree:
    """The parameters, if they were made with these settings."""
    with np.load(path) as file:
        made_with = Pretraining(**json.loads(str(file["settings"])))
        if made_with != settings:
            raise ValueError(
                f"{path} was made with {made_with}, but the configuration says {settings}. Delete the "
                "file, or name another one as `pretrained` in the configuration."
            )
        leaves = [file[str(number)] for number in range(len(file.files) - 1)]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)
