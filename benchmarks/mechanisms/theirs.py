"""The mechanisms of jax_privacy, in the environment that `tools/peers.py jax` makes.

Its draws come from jax_privacy itself: with the same key, the privatizer of the identity matrix adds
what another matrix is multiplied with. For independent noise, which is that privatizer, they are made
again from the key, as its source does. It has no adaptive clipping and no noise on a grid.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax_privacy import noise_addition
from jax_privacy.accounting import accountants, analysis
from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz

from benchmarks.mechanisms import exactness, ours, rows
from benchmarks.mechanisms.ours import Candidate, Step
from benchmarks.mechanisms.rows import Row
from bk_jax import mechanisms
from bk_jax.mechanisms import CorrelatedNoise


def key() -> jax.Array:
    """The same for all rows; a new array, since states are donated."""
    return jax.random.key(0)


def matrix_of(noise: CorrelatedNoise) -> Any:
    """`C^-1`: streaming where it has that, or dense."""
    if isinstance(noise, mechanisms.BandedToeplitz):
        return toeplitz.inverse_as_streaming_matrix(jnp.asarray(noise.coefficients))
    if isinstance(noise, mechanisms.BufferedToeplitz):
        blt = buffered_toeplitz.BufferedToeplitz.build(
            buf_decay=list(noise.decays), output_scale=list(noise.scales), dtype=jnp.float32
        )
        return blt.inverse_as_streaming_matrix()
    return jnp.asarray(ours.inverse_of(noise), jnp.float32)


def privatizer(matrix: Any, stddev: float) -> Any:
    """`None` is independent noise."""
    if matrix is None:
        return noise_addition.gaussian_privatizer(stddev=stddev, prng_key=key())
    return noise_addition.matrix_factorization_privatizer(matrix, stddev=stddev, prng_key=key())


def step_of(private: Any) -> Step:
    """As our own steps are; the state knows its number."""

    def step(sums: Any, state: Any, number: Any) -> Any:
        del number
        return private.update(sums, state)

    return step


def draws(matrix: Any) -> list[np.ndarray[Any, Any]]:
    """What is multiplied with the matrix, each with a deviation of 1."""
    if matrix is None:
        return _draws_of_the_key()
    # Rows of a dense matrix fold their number into the key; others split it.
    same = privatizer(jnp.eye(rows.STEPS) if isinstance(matrix, jax.Array) else None, 1.0)
    return ours.noise_of(step_of(same), same.init(jnp.zeros(rows.VALUES)))


def _draws_of_the_key() -> list[np.ndarray[Any, Any]]:
    rest, found = key(), []
    for _ in range(rows.CHECKED):
        rest, own = jax.random.split(rest)
        z = optax.tree.random_like(own, jnp.zeros(rows.VALUES), jax.random.normal)
        found.append(np.asarray(z))
    return found


def epsilon(stddev: float, noise: CorrelatedNoise) -> float:
    """By its sensitivity and its accountant of one release."""
    column = jnp.asarray(noise.strategy(rows.STEPS))
    sensitivity = float(toeplitz.sensitivity_squared(column, rows.STEPS)) ** 0.5
    accountant = analysis.SingleReleaseTrainingAccountant(accountants.PldAccountantConfig())
    settings = analysis.DpParams(
        noise_multipliers=stddev / sensitivity,
        num_samples=rows.BATCH * rows.STEPS,
        delta=rows.DELTA,
        batch_size=rows.BATCH,
    )
    return float(accountant.compute_epsilon(rows.STEPS, settings))


def candidate(name: str, noise: CorrelatedNoise, size: int) -> Candidate:
    """The same matrix, and draws of the same deviation, as ours."""
    matrix = None if name == "independent" else matrix_of(noise)
    how = "" if matrix is None else ", streaming"
    how = ", as a dense matrix" if isinstance(matrix, jax.Array) else how
    stddev = rows.MULTIPLIER * ours.WHO.sensitivity(noise.strategy(rows.STEPS))
    private, inverse = privatizer(matrix, stddev), ours.inverse_of(noise)
    step, state = step_of(private), private.init(jnp.zeros(size))
    begin = private.init(jnp.zeros(rows.VALUES))
    found = [each / stddev for each in ours.noise_of(step, begin)]
    row = Row(
        library="jax_privacy",
        mechanism=name + how,
        off=exactness.off(inverse, draws(matrix), found),
        normal=exactness.normal(found[-1], exactness.deviation(inverse, rows.CHECKED - 1)),
        theirs=epsilon(stddev, noise),
        here=exactness.gaussian(exactness.distance_of_runs(inverse, stddev), rows.DELTA),
        kept=ours.held(step, state, size),
    )
    return Candidate(row, step, state)


def candidates(size: int) -> list[Candidate]:
    """Those of ours that it has."""
    noises = {"independent": mechanisms.BandedInverse((1.0,)), **ours.NOISES}
    return [candidate(name, noise, size) for name, noise in noises.items()]
