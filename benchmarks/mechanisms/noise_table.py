"""Mechanisms side by side: exactness, epsilon, what is kept between steps, and time of a step's noise.

    PYTHONPATH=python:. .venv-peers-jax/bin/python benchmarks/mechanisms/noise_table.py

jax_privacy's rows need the environment that `tools/peers.py jax` makes; without it there are only ours.
All candidates add the noise of a step to one float32 array, in turns in one process. "Off" is the
largest distance of the noise of 12 steps from `C^-1` times the draws in float64, in deviations of a
draw; for jax_privacy it is that of its matrix applied to our draws.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np

import bk_jax
from bk_jax import mechanisms, ops
from bk_jax.mechanisms import CorrelatedNoise, toeplitz
from bk_jax.planning.machine_rates import cpu_name

BANDS, STEPS, DELTA, MULTIPLIER = 8, 64, 1e-5, 1.0
DECAYS, SCALES = (0.9, 0.5), (0.3, 0.2)
CHECKED = 12  # steps whose noise is compared
WHO = mechanisms.SingleParticipation(STEPS)
KEY = bk_jax.random.key(0)
NOISES = {
    "independent": mechanisms.BandedInverse((1.0,)),
    f"banded inverse, {BANDS} bands": mechanisms.BandedInverse.square_root(BANDS),
    f"banded strategy (BandMF), {BANDS} bands": mechanisms.BandedToeplitz.square_root(BANDS),
    f"buffered (BLT), {len(DECAYS)} buffers": mechanisms.BufferedToeplitz(DECAYS, SCALES),
}


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A mechanism: `step(sums, state, number)` returns noisy sums and the next state."""

    library: str
    name: str
    step: Callable[..., Any]
    state: Any
    off: float
    epsilon: float


def gaussian_epsilon(multiplier: float) -> float:
    """Of one Gaussian mechanism, by dp_accounting."""
    event = dp_accounting.GaussianDpEvent(multiplier)
    return float(dp_accounting.pld.PLDAccountant().compose(event).get_epsilon(DELTA))


def draws(size: int) -> list[np.ndarray]:
    """The draws of the first steps, in float64."""
    keys = [jax.random.key_data(jax.random.fold_in(KEY, step)) for step in range(CHECKED)]
    made = [ops.gaussian(jnp.zeros(size), words, 1.0) for words in keys]
    return [np.asarray(z, np.float64) for z in made]


def distance(noise: CorrelatedNoise, found: list[Any]) -> float:
    """How far the noise of the first steps is from the exact one, in deviations of a draw."""
    dense = toeplitz.matrix(noise.inverse(CHECKED), CHECKED)
    z = draws(found[0].size)
    exact = [sum(dense[t, s] * z[s] for s in range(t + 1)) for t in range(CHECKED)]
    return max(float(np.max(abs(np.asarray(f) - e))) for f, e in zip(found, exact, strict=True))


def ours(name: str, noise: CorrelatedNoise, size: int) -> Candidate:
    """Correlated noise of bk_jax."""
    grad_fn = bk_jax.dp_value_and_grad(lambda w, x: (w * x).sum(), noise_multiplier=MULTIPLIER)
    private = mechanisms.correlated(grad_fn, noise, WHO)
    stddev = private.draw_stddev()

    def step(sums: Any, state: Any, number: Any) -> Any:
        keys = mechanisms.recent_keys(KEY, number, noise.keys_needed)
        return private.release(sums, state, keys=keys, step=number)

    few = jnp.zeros(1000)
    state, found, compiled = private.init(few), [], jax.jit(step)
    for t in range(CHECKED):
        out, state = compiled(few, state, t)
        found.append(np.asarray(out, np.float64) / stddev)
    multiplier = stddev / WHO.sensitivity(noise.strategy(STEPS))
    return Candidate(
        "bk_jax", name, step, private.init(jnp.zeros(size)), distance(noise, found),
        gaussian_epsilon(multiplier),
    )  # fmt: skip


def on_grid(size: int) -> Candidate:
    """Independent noise on a grid; its noise is exact, and epsilon by Renyi accounting."""
    grad_fn = bk_jax.dp_value_and_grad(lambda w, x: (w * x).sum(), noise_multiplier=MULTIPLIER)
    private = mechanisms.on_grid(grad_fn)

    def step(sums: Any, state: Any, number: Any) -> Any:
        noisy = private.release(sums.astype(jnp.int32), jax.random.fold_in(KEY, number))
        return noisy, state

    epsilon = private.accountant().compose(private.event()).get_epsilon(DELTA)
    return Candidate("bk_jax", "independent, on a grid", step, (), 0.0, float(epsilon))


def theirs(name: str, noise: CorrelatedNoise, size: int) -> list[Candidate]:
    """The same matrices by jax_privacy: streaming, and for banded inverses also dense."""
    from jax_privacy import noise_addition
    from jax_privacy.matrix_factorization import buffered_toeplitz
    from jax_privacy.matrix_factorization import toeplitz as peer

    made: list[tuple[str, Any, Any]] = []
    if isinstance(noise, mechanisms.BandedInverse):
        dense = toeplitz.matrix(noise.inverse(STEPS), STEPS)
        made.append(("dense matrix", jnp.asarray(dense, jnp.float32), None))
    elif isinstance(noise, mechanisms.BandedToeplitz):
        matrix = peer.inverse_as_streaming_matrix(jnp.asarray(noise.coefficients))
        made.append(("streaming", matrix, matrix))
    else:
        blt = buffered_toeplitz.BufferedToeplitz.build(
            buf_decay=list(DECAYS), output_scale=list(SCALES), dtype=jnp.float32
        )
        matrix = blt.inverse_as_streaming_matrix()
        made.append(("streaming", matrix, matrix))
    column = jnp.asarray(noise.strategy(STEPS))
    sensitivity = float(peer.sensitivity_squared(column, STEPS)) ** 0.5
    stddev = MULTIPLIER * WHO.sensitivity(noise.strategy(STEPS))
    found = []
    for how, matrix, streaming in made:
        private = noise_addition.matrix_factorization_privatizer(
            matrix, stddev=stddev, prng_key=jax.random.key(0)
        )
        off = distance(noise, _multiplied(streaming)) if streaming is not None else float("nan")
        epsilon = gaussian_epsilon(stddev / sensitivity)

        def step(sums: Any, state: Any, number: Any, private: Any = private) -> Any:
            del number
            return private.update(sums, state)

        state = private.init(jnp.zeros(size))
        found.append(Candidate("jax_privacy", f"{name} ({how})", step, state, off, epsilon))
    return found


def _multiplied(matrix: Any) -> list[Any]:
    """Their matrix applied to our draws, step by step."""
    state, found = matrix.init_multiply(jnp.zeros(1000)), []
    for z in draws(1000):
        out, state = matrix.multiply_next(jnp.asarray(z, jnp.float32), state)
        found.append(np.asarray(out, np.float64))
    return found


def timed(candidates: list[Candidate], size: int, rounds: int) -> list[float]:
    """Seconds of a step, medians; candidates take turns."""
    compiled = [jax.jit(c.step, donate_argnums=(0, 1)) for c in candidates]
    states = [c.state for c in candidates]
    seconds: list[list[float]] = [[] for _ in candidates]
    for turn in range(rounds + 2):
        for i, step in enumerate(compiled):
            sums = jax.block_until_ready(jnp.zeros(size))
            begin = time.perf_counter()
            _, states[i] = jax.block_until_ready(step(sums, states[i], turn + BANDS))
            seconds[i].append(time.perf_counter() - begin)
    return [float(np.median(each[2:])) for each in seconds]


def kept(state: Any) -> int:
    """Bytes of arrays that a state holds, keys and counters aside."""
    leaves = [x for x in jax.tree_util.tree_leaves(state) if getattr(x, "ndim", 0) > 0]
    return sum(int(x.nbytes) for x in leaves if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1_000_000, help="parameters")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    size = options.size
    candidates = [ours(name, noise, size) for name, noise in NOISES.items()] + [on_grid(size)]
    if importlib.util.find_spec("jax_privacy"):
        for name, noise in NOISES.items():
            candidates += theirs(name, noise, size)
    seconds = timed(candidates, size, options.rounds)
    print(f"{cpu_name()}, {datetime.date.today()}, {size:,} parameters, {options.rounds} rounds\n")
    print(
        "| library | mechanism | off | epsilon | kept, copies of the model | ns per value | ratio |"
    )
    print("|---|---|---|---|---|---|---|")
    for c, s in zip(candidates, seconds, strict=True):
        copies = kept(c.state) / (4 * size)
        print(
            f"| {c.library} | {c.name} | {c.off:.0e} | {c.epsilon:.3f} | {copies:.3g} "
            f"| {s / size * 1e9:.1f} | {s / seconds[0]:.1f} |"
        )


if __name__ == "__main__":
    main()
