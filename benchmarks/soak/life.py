"""One life of a run: a forked process that calls `fit` and writes down every key that it gets.

| line of the log | means |
|---|---|
| `life 120` | a process began, with the checkpoint of step 120 (0: none) |
| `take 131 5f0c...` | step 131 was taken; its noise key, before anything is made of it |
| `end 10000` | the run is over, with so many steps on record |

A line is written before the key is used, so no key is used that the log does not have.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.soak.faults import Switches, is_expected, suffer

EXPECTED = 17  # exit code after an error that was switched on
SEED = 11
EXAMPLES, FEATURES = 240, 6


def data() -> dict[str, np.ndarray]:
    """A small logistic regression."""
    random = np.random.default_rng(0)
    x = random.normal(size=(EXAMPLES, FEATURES)).astype(np.float32)
    return {"x": x, "y": (x.sum(1) > 0).astype(np.float32)}


def start() -> dict[str, np.ndarray]:
    return {"w": np.zeros(FEATURES, np.float32), "b": np.zeros((), np.float32)}


def loss_fn(params: Any, batch: Any) -> Any:
    import jax.numpy as jnp

    logits = batch["x"] @ params["w"] + params["b"]
    return jnp.mean(jnp.logaddexp(0.0, logits) - batch["y"] * logits)


def optimizer() -> Any:
    import optax

    return optax.adam(0.01)


def plan(steps: int) -> Any:
    from bk_jax import privacy

    return privacy.PrivacyPlan(
        num_examples=EXAMPLES, batch_size=16, steps=steps, delta=1e-3, noise_multiplier=4.0,
        max_batch_size=64, pld_interval=0.05,
    )  # fmt: skip


def secret() -> Any:
    """The key of the run; a fixed one, so that the run can be repeated."""
    import bk_jax.random

    return bk_jax.random.key(SEED)


def words(key: Any) -> str:
    """A key as text."""
    import jax

    return np.asarray(jax.random.key_data(key)).tobytes().hex()


def logged(path: Path) -> Callable[[str], None]:
    """Writes lines that survive the process."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(line: str) -> None:
        os.write(descriptor, f"{line}\n".encode())

    return write


def live(folder: Path, log: Path, result: Path, steps: int, every: int, switches: Switches) -> None:
    """Goes on with the run until it is over, or until something ends this process."""
    import rich.console

    from bk_jax import training
    from bk_jax.privacy import Ledger
    from bk_jax.training.checkpoints import place_of_latest

    write, take = logged(log), Ledger.take
    suffer(switches, folder)
    place = place_of_latest(folder / "checkpoints")
    write(f"life {0 if place is None else place['steps']}")

    def taken(self: Any, number: int | None = None) -> Any:
        step = take(self, number)
        write(f"take {step.number} {words(step.noise_key)}")
        return step

    Ledger.take = taken  # type: ignore[method-assign]
    found = training.fit(
        loss_fn, start(), data(), plan=plan(steps), optimizer=optimizer(), directory=folder,
        checkpoint_every=every, report_every=max(every, steps // 4), forfeit=True, plot=False,
        key=secret(), console=rich.console.Console(file=io.StringIO()),
    )  # fmt: skip
    if found.stopped == "budget":
        write(f"end {found.steps}")
        np.savez(result, epsilon=found.epsilon, **found.params)


def prepare(steps: int, cache: Path) -> None:
    """What all lives have in common, done once: imports, what the plan spends, compiled programs."""
    import jax
    import optax  # noqa: F401
    import orbax.checkpoint  # noqa: F401
    import rich.console  # noqa: F401

    from bk_jax import training  # noqa: F401

    plan(steps).epsilon()
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def begin(errors: Path, *args: Any) -> int:
    """Forks a process that lives; its id. This process must not have started JAX."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # threads of imported libraries, which hold no locks here
        process = os.fork()
    if process:
        return process
    code = 1
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), sys.stderr.fileno())
    try:
        live(*args)
        code = 0
    except BaseException as error:
        if is_expected(error):
            code = EXPECTED
        else:
            traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
