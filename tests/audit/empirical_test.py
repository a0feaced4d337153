"""Empirical epsilon: below the accountant's for what is private, above it for what is not."""

from __future__ import annotations

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import bk_jax
from bk_jax.audit import canary_statistic, empirical_epsilon, epsilon_lower_bound
from bk_jax.audit.empirical import largest_rate, least_rate

DELTA = 1e-5


def loss_fn(w, x):
    return jnp.sum(x @ w)


W, BATCH = np.zeros((3, 2), np.float32), 7 * np.eye(3, dtype=np.float32)


def accounted(noise_multiplier, steps):
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.GaussianDpEvent(noise_multiplier), steps
    )
    return dp_accounting.pld.PLDAccountant().compose(event).get_epsilon(DELTA)


def measured(noise_multiplier, steps):
    grad_fn = bk_jax.dp_value_and_grad(loss_fn, noise_multiplier=noise_multiplier)
    run = canary_statistic(grad_fn, W, BATCH, canary=1, steps=steps)
    return empirical_epsilon(run, delta=DELTA, trials=2000)


def test_a_private_gradient_stays_below_its_epsilon():
    assert 1.0 < measured(2.0, steps=4) < accounted(2.0, steps=4)


def test_noise_that_is_five_times_too_small_is_above():
    assert measured(2.0 / 5, steps=4) > accounted(2.0, steps=4) + 0.5


def test_the_bound_holds_as_often_as_promised():
    """A Laplace mechanism of epsilon 1: the best test attains it, so a bound is often near."""
    rng = np.random.default_rng(0)
    noise = rng.laplace(size=(200, 2, 400))
    bounds = [epsilon_lower_bound(1 + a, b, delta=0.0, confidence=0.8) for a, b in noise]
    assert np.mean(np.asarray(bounds) > 1.0) <= 0.2
    assert np.median(bounds) > 0.5


def test_which_side_the_canary_pushes_to_does_not_matter():
    rng = np.random.default_rng(0)
    a, b = 5 + rng.normal(size=2000), rng.normal(size=2000)
    bounds = [
        epsilon_lower_bound(sign * x, sign * y, delta=DELTA)
        for sign in (1, -1)
        for x, y in ((a, b), (b, a))
    ]
    assert min(bounds) > 4.0


def test_delta_lowers_the_bound():
    ones, zeros = np.ones(100), np.zeros(100)
    assert epsilon_lower_bound(ones, zeros, delta=0.5) < epsilon_lower_bound(ones, zeros, delta=0.0)
    assert epsilon_lower_bound(ones, zeros, delta=0.99) == 0.0


def test_equal_numbers_show_nothing():
    assert epsilon_lower_bound(np.ones(50), np.ones(50), delta=0.0) == 0.0


@pytest.mark.parametrize(("successes", "trials"), [(0, 1), (1, 1), (0, 50), (3, 50), (50, 50)])
def test_rates_are_those_of_clopper_and_pearson(successes, trials):
    exact = scipy.stats.binomtest(successes, trials).proportion_ci(0.9, method="exact")
    np.testing.assert_allclose(least_rate(successes, trials, 0.05), exact.low, rtol=1e-12)
    np.testing.assert_allclose(largest_rate(successes, trials, 0.05), exact.high, rtol=1e-12)


def test_runs_repeat():
    def run(key, included):
        return included + jax.random.normal(key)

    one, two = (empirical_epsilon(run, delta=0.0, trials=9, key=jax.random.key(1)) for _ in "ab")
    assert one == two


# --- errors ---


def test_a_canary_must_do_something():
    grad_fn = bk_jax.dp_value_and_grad(loss_fn)
    with pytest.raises(ValueError, match="example 2 adds nothing to the result"):
        canary_statistic(grad_fn, W, BATCH * np.float32([[1], [1], [0]]), canary=2)


@pytest.mark.parametrize(
    "options", [{"delta": 1.0}, {"delta": -0.1}, {"delta": 0.0, "confidence": 1.0}]
)
def test_probabilities_are_probabilities(options):
    with pytest.raises(ValueError, match="need 0 <= delta < 1 and 0 < confidence < 1"):
        epsilon_lower_bound(np.ones(4), np.zeros(4), **options)


@pytest.mark.parametrize("values", [np.ones(1), np.ones((2, 2)), np.float64([1, np.nan])])
def test_numbers_of_runs_are_vectors(values):
    with pytest.raises(ValueError, match="a vector of at least 2 finite numbers"):
        epsilon_lower_bound(values, np.zeros(4), delta=0.0)


def test_one_trial_is_too_few():
    with pytest.raises(ValueError, match="trials must be at least 2"):
        empirical_epsilon(lambda key, included: 0.0, delta=0.0, trials=1)
