"""The mechanisms of bk_jax, as candidates for the table.

Draws are made again from the keys (`ops.gaussian`, `ops.discrete_gaussian`), so "off" is what adding,
scaling and remembering them does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import bk_jax
from benchmarks.mechanisms import exactness, rows
from benchmarks.mechanisms.rows import Row
from bk_jax import mechanisms, ops, privacy
from bk_jax.mechanisms import CorrelatedNoise, toeplitz
from bk_jax.mechanisms.grid import WHOLE_ORDERS

WHO = mechanisms.SingleParticipation(rows.STEPS)
KEY = bk_jax.random.key(0)
SETTINGS: dict[str, Any] = {"batch_size": rows.BATCH, "delta": rows.DELTA, "noise_multiplier": 1.0}
NOISES: dict[str, CorrelatedNoise] = {
    f"banded inverse, {rows.BANDS} bands": mechanisms.BandedInverse.square_root(rows.BANDS),
    f"BandMF, {rows.BANDS} bands": mechanisms.BandedToeplitz.square_root(rows.BANDS),
    f"BLT, {len(rows.DECAYS)} buffers": mechanisms.BufferedToeplitz(rows.DECAYS, rows.SCALES),
}
Step = Callable[[Any, Any, Any], tuple[Any, Any]]


class Candidate(NamedTuple):
    """A row, and `step(sums, state, number)`, which returns noisy sums and the next state."""

    row: Row
    step: Step
    state: Any


def inverse_of(noise: CorrelatedNoise) -> np.ndarray[Any, Any]:
    """`C^-1` of the whole run, in float64."""
    return toeplitz.matrix(noise.inverse(rows.STEPS), rows.STEPS)


def noise_of(step: Step, state: Any, dtype: Any = jnp.float32) -> list[np.ndarray[Any, Any]]:
    """What the first steps add to zeros, in float64."""
    compiled, found = jax.jit(step), []
    for number in range(rows.CHECKED):
        out, state = compiled(jnp.zeros(rows.VALUES, dtype), state, number)
        found.append(np.asarray(out, np.float64))
    return found


def words() -> list[jax.Array]:
    """Of the keys of the first steps."""
    return [jax.random.key_data(jax.random.fold_in(KEY, step)) for step in range(rows.CHECKED)]


def draws() -> list[np.ndarray[Any, Any]]:
    """Of the first steps, each with a deviation of 1."""
    return [np.asarray(ops.gaussian(jnp.zeros(rows.VALUES), key, 1.0)) for key in words()]


def held(step: Step, state: Any, size: int) -> float:
    """Bytes of the state and of the constants of the step, over those of the array."""
    traced = jax.make_jaxpr(step)(jnp.zeros(size), state, 0)
    arrays = [*jax.tree_util.tree_leaves(state), *traced.consts]
    return sum(jnp.asarray(x).nbytes for x in arrays) / (4 * size)


def grad_fn_with(multiplier: float, norm: Any = 1.0) -> Any:
    """Only its noise is used."""
    return bk_jax.dp_value_and_grad(
        lambda w, x: (w * x).sum(), noise_multiplier=multiplier, l2_clip_norm=norm
    )


def correlated(name: str, noise: CorrelatedNoise, size: int) -> Candidate:
    """Noise that is correlated over steps."""
    private = mechanisms.correlated(grad_fn_with(rows.MULTIPLIER), noise, WHO)

    def step(sums: Any, state: Any, number: Any) -> Any:
        keys = mechanisms.recent_keys(KEY, number, noise.keys_needed)
        return private.release(sums, state, keys=keys, step=number)

    stddev, inverse = private.draw_stddev(), inverse_of(noise)
    found = [each / stddev for each in noise_of(step, private.init(jnp.zeros(rows.VALUES)))]
    plan = privacy.CorrelatedPlan(
        noise=noise, participation=WHO, num_examples=rows.BATCH * rows.STEPS, **SETTINGS
    )
    state = private.init(jnp.zeros(size))
    row = Row(
        library="bk_jax",
        mechanism=name,
        off=exactness.off(inverse, draws(), found),
        normal=exactness.normal(found[-1], exactness.deviation(inverse, rows.CHECKED - 1)),
        theirs=plan.epsilon(),
        here=exactness.gaussian(exactness.distance_of_runs(inverse, stddev), rows.DELTA),
        kept=held(step, state, size),
    )
    return Candidate(row, step, state)


def on_grid(size: int) -> Candidate:
    """Independent noise in whole grid steps; `off` is in deviations, too."""
    private = mechanisms.on_grid(grad_fn_with(rows.MULTIPLIER))

    def step(sums: Any, state: Any, number: Any) -> Any:
        key = jax.random.fold_in(KEY, number)
        return private.release(sums.astype(jnp.int32), key), state

    bits, nothing = private.bits, jnp.zeros(rows.VALUES, jnp.int32)
    whole = [np.asarray(ops.discrete_gaussian(nothing, key, bits=bits)) for key in words()]
    found = noise_of(step, ())
    row = Row(
        library="bk_jax",
        mechanism="independent, on a grid",
        off=exactness.off(np.eye(rows.CHECKED), np.asarray(whole) * private.step, found),
        normal=exactness.normal(found[-1], rows.MULTIPLIER),
        theirs=private.accountant().compose(private.event()).get_epsilon(rows.DELTA),
        here=exactness.renyi(rows.MULTIPLIER, WHOLE_ORDERS, rows.DELTA),
        kept=held(step, (), size),
    )
    return Candidate(row, step, ())


def independent(size: int) -> Candidate:
    """DP-SGD's noise."""

    def step(sums: Any, state: Any, number: Any) -> Any:
        key = jax.random.fold_in(KEY, number)
        return grad_fn_with(rows.MULTIPLIER).release(sums, key), state

    mu = 1 / rows.MULTIPLIER
    plan = privacy.PrivacyPlan(num_examples=rows.BATCH, steps=1, **SETTINGS)
    row = fresh("independent", step, (), rows.MULTIPLIER, plan, mu, size)
    return Candidate(row, step, ())


def adaptive(size: int) -> Candidate:
    """The gradient's share of the noise, and a count that moves the clip norm."""
    clip = mechanisms.AdaptiveClipping(
        rows.BATCH, rows.QUANTILE, rows.LEARNING_RATE, rows.COUNT_STDDEV
    )
    multiplier, (steps, bits) = clip.split(rows.MULTIPLIER), clip.grid
    votes = jnp.full((1,), rows.UNCLIPPED - rows.BATCH / 2)

    def step(sums: Any, norm: Any, number: Any) -> Any:
        key = jax.random.fold_in(KEY, number)
        grads = grad_fn_with(multiplier, norm).release(sums, key)
        return grads, clip.moved(norm, votes, key=key)

    def with_norm_1(sums: Any, norm: Any, number: Any) -> Any:
        return step(sums, jnp.float32(1), number)[0], norm

    mu = math.hypot(
        1 / multiplier, steps / 2**bits
    )  # a vote of 1/2 is `steps` of the count's noise
    plan = privacy.PrivacyPlan(num_examples=rows.BATCH, steps=1, adaptive=clip, **SETTINGS)
    row = fresh(rows.ADAPTIVE, with_norm_1, jnp.float32(1), multiplier, plan, mu, size)
    return Candidate(row, step, jnp.float32(1))


def fresh(name: str, step: Step, state: Any, stddev: float, plan: Any, mu: float, size: int) -> Row:
    """A row of noise that is independent at every step, with a step that everybody takes part in."""
    found = [each / stddev for each in noise_of(step, state)]
    return Row(
        library="bk_jax",
        mechanism=name,
        off=exactness.off(np.eye(rows.CHECKED), draws(), found),
        normal=exactness.normal(found[-1], 1.0),
        theirs=plan.epsilon(),
        here=exactness.gaussian(mu, rows.DELTA),
        kept=held(step, state, size),
    )


def candidates(size: int) -> list[Candidate]:
    """Independent noise first: ratios are to it."""
    made = [correlated(name, noise, size) for name, noise in NOISES.items()]
    return [independent(size), *made, on_grid(size), adaptive(size)]
