"""One of several processes that train a model together; started by `hosts_test.py`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import bk_jax
from bk_jax import privacy, sampling
from bk_jax.training.checkpoints import Checkpoints, place_of_latest

DATA = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
PLAN = privacy.PrivacyPlan(
    num_examples=60, batch_size=12, max_batch_size=24, steps=6, delta=1e-3, noise_multiplier=1.0,
    pld_interval=0.05,
)  # fmt: skip
PARAMS = {"w": np.ones((8, 4), np.float32) / 3, "b": np.ones(4, np.float32) / 2}
SPECS = {"w": P("data"), "b": P()}  # one parameter is cut, as with FSDP
EVERY = 2  # steps between checkpoints


def loss_fn(params: Any, x: jax.Array) -> jax.Array:
    return jnp.mean(jnp.square(jnp.tanh(x @ params["w"] + params["b"]) - x[:, :4]))


class Trainer:
    """The model on the devices of all processes, and one step of it."""

    def __init__(self) -> None:
        self.mesh = jax.make_mesh(
            (jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,)
        )
        self.places = {name: NamedSharding(self.mesh, spec) for name, spec in SPECS.items()}
        self.rows = NamedSharding(self.mesh, P("data"))
        self.loader = sampling.Loader(
            DATA, sampling.PoissonSampler.of(PLAN), hosts=sampling.Hosts.of_sharding(self.rows)
        )
        grad_fn = bk_jax.dp_value_and_grad(loss_fn, **PLAN.options())

        def step(params: Any, batch: sampling.Batch, key: Any) -> Any:
            padding = batch.is_padding_example
            _, grads = grad_fn(params, batch.examples, key=key, is_padding_example=padding)
            return jax.tree.map(lambda w, g: w - 0.5 * g, params, grads)

        self._step = jax.jit(step, out_shardings=self.places)

    def start(self) -> dict[str, jax.Array]:
        return {
            name: jax.make_array_from_callback(
                value.shape, self.places[name], lambda index, value=value: value[index]
            )
            for name, value in PARAMS.items()
        }

    def take(self, params: Any, step: privacy.Step) -> Any:
        share = self.loader.batch(step.sampling_key)
        batch = sampling.spread(share, self.rows, self.loader.hosts)
        return self._step(params, batch, step.noise_key)


def train(folder: Path, *, killed: bool = False, forfeit: bool = False) -> None:
    """Goes on where the newest checkpoint is; if `killed`, this process dies in its fifth step."""
    trainer, place = Trainer(), place_of_latest(folder / "checkpoints")
    with contextlib.ExitStack() as stack:
        ledger = stack.enter_context(
            privacy.open_shared_ledger(
                folder / "run.ledger", PLAN, checkpoint=place, forfeit=forfeit,
                key=None if place else bk_jax.random.key(5),
            )
        )  # fmt: skip
        checkpoints = stack.enter_context(contextlib.closing(Checkpoints(folder / "checkpoints")))
        params = checkpoints.restore(trainer.start())
        for step in ledger:
            if killed and step.number == 4:
                os.kill(os.getpid(), signal.SIGKILL)
            params = jax.block_until_ready(trainer.take(params, step))
            if ledger.steps % EVERY == 0:
                checkpoints.save(params, ledger.checkpoint())
        print("epsilon", ledger.epsilon(), "steps", ledger.steps)


def main(folder: str, number: str, count: str, port: str, *what: str) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        f"localhost:{port}", int(count), int(number), heartbeat_timeout_seconds=10
    )
    if "forfeit" in what:
        try:
            train(Path(folder))
        except privacy.LedgerError as refusal:
            print("refused:", refusal)
    train(Path(folder), killed="killed" in what and number == "1", forfeit="forfeit" in what)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
