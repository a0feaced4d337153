"""Correlated noise beside jax_privacy's: the same draws give the same noise and sensitivities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_privacy import auditing
from jax_privacy.matrix_factorization import buffered_toeplitz
from jax_privacy.matrix_factorization import toeplitz as peer

import bk_jax
from bk_jax import mechanisms, ops
from bk_jax.audit import gaussian_epsilon
from bk_jax.audit.one_run_gaussian import guesses_mu
from bk_jax.mechanisms import toeplitz

STEPS, SIZE = 7, 500
KEY = bk_jax.random.key(4)
DECAYS, SCALES = (0.9, 0.5), (0.3, 0.2)


def their_matrix(noise):
    """`C^-1` of jax_privacy: streaming where it has that, or dense."""
    if isinstance(noise, mechanisms.BandedToeplitz):
        return peer.inverse_as_streaming_matrix(jnp.asarray(noise.coefficients))
    if isinstance(noise, mechanisms.BufferedToeplitz):
        blt = buffered_toeplitz.BufferedToeplitz.build(
            buf_decay=list(DECAYS), output_scale=list(SCALES), dtype=jnp.float32
        )
        return blt.inverse_as_streaming_matrix()
    return None


def our_noise(noise):
    grad_fn = bk_jax.dp_value_and_grad(lambda w, x: (w * x).sum())
    private = mechanisms.correlated(grad_fn, noise, mechanisms.SingleParticipation(STEPS))
    state, found = private.init(jnp.zeros(SIZE)), []
    for step in range(STEPS):
        keys = mechanisms.recent_keys(KEY, step, noise.keys_needed)
        out, state = private.release(jnp.zeros(SIZE), state, keys=keys, step=step)
        found.append(np.asarray(out) / private.draw_stddev())
    return found


def draws():
    keys = [jax.random.key_data(jax.random.fold_in(KEY, step)) for step in range(STEPS)]
    return [ops.gaussian(jnp.zeros(SIZE), words, 1.0) for words in keys]


@pytest.mark.parametrize(
    "noise",
    [
        mechanisms.BandedInverse.square_root(3),
        mechanisms.BandedToeplitz.square_root(4),
        mechanisms.BufferedToeplitz(DECAYS, SCALES),
    ],
    ids=lambda noise: type(noise).__name__,
)
def test_the_same_draws_give_the_same_noise(noise):
    matrix, z = their_matrix(noise), draws()
    if matrix is None:
        column = peer.inverse_coef(jnp.asarray(noise.strategy(STEPS), jnp.float32), STEPS)
        dense = toeplitz.matrix(np.asarray(column, np.float64), STEPS)
        expected = [sum(dense[t, s] * z[s] for s in range(t + 1)) for t in range(STEPS)]
    else:
        state, expected = matrix.init_multiply(jnp.zeros(SIZE)), []
        for one in z:
            out, state = matrix.multiply_next(one, state)
            expected.append(out)
    for ours, theirs in zip(our_noise(noise), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=5e-6)


def test_one_run_bounds_are_theirs():
    for right, guesses, canaries in [(90, 100, 200), (150, 200, 300)]:
        expected = auditing._epsilon_one_run_fdp(0.0, canaries, guesses, right, 0.05, 1e-5)
        mu = guesses_mu(right, guesses, canaries=canaries, risk=0.05)
        assert gaussian_epsilon(mu, 1e-5) == pytest.approx(expected, abs=1e-3)


def largest_error(noise, who):
    """Deviation of the noisiest sum, for a sensitivity of 1."""
    sums = np.cumsum(noise.inverse(who.steps))
    return np.sqrt(np.max(np.cumsum(sums**2))) * who.sensitivity(noise.strategy(who.steps))


def test_optimized_bands_are_theirs_and_better_than_the_square_root():
    steps, bands = 24, 4
    who = mechanisms.MinSeparation(steps, bands)
    noise = mechanisms.BandedToeplitz.optimized(bands, steps, error="max")
    with jax.enable_x64(True):
        expected = peer.optimize_banded_toeplitz(steps, bands, reduction_fn=jnp.max)
    np.testing.assert_allclose(noise.coefficients, expected, rtol=1e-12)
    root = mechanisms.BandedToeplitz.square_root(bands)
    assert largest_error(noise, who) < 0.99 * largest_error(root, who)


def test_optimized_buffers_are_theirs_and_better_than_independent_noise():
    limits = {"separation": 8, "max_participations": 2}
    noise = mechanisms.BufferedToeplitz.optimized(16, **limits, max_buffers=2)
    with jax.enable_x64(True):
        expected = buffered_toeplitz.optimize(n=16, min_sep=8, max_participations=2, max_buffers=2)
        np.testing.assert_allclose(noise.strategy(16), expected.toeplitz_coefs(16), rtol=1e-9)
    assert 1 <= noise.arrays_stored <= 2
    who = mechanisms.MinSeparation(16, **limits)
    independent = mechanisms.BandedToeplitz((1.0,))
    assert largest_error(noise, who) < 0.9 * largest_error(independent, who)
