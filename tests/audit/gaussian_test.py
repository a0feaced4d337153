"""Audits in terms of Gaussian privacy."""

from __future__ import annotations

import re

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from bk_jax.audit import estimated_mu, gaussian_epsilon, mu_lower_bound


def normals(mu, size, seed=0):
    rng = np.random.default_rng(seed)
    return mu + rng.normal(size=size), rng.normal(size=size)


@pytest.mark.parametrize("mu", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_epsilon_is_the_accountants(mu, delta):
    event = dp_accounting.GaussianDpEvent(1 / mu)
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-4)
    expected = accountant.compose(event).get_epsilon(delta)
    assert gaussian_epsilon(mu, delta) == pytest.approx(expected, rel=2e-3, abs=2e-3)


def test_no_difference_is_no_epsilon():
    assert gaussian_epsilon(0.0, 1e-5) == 0


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_bounds_are_below_the_truth_and_near_it(mu):
    bound, estimate = (find(*normals(mu, 20_000)) for find in (mu_lower_bound, estimated_mu))
    assert 0.85 * mu < bound < mu
    assert 0.95 * mu < estimate < mu + 0.02


def test_a_bound_by_mental_arithmetic():
    """All 1000 counted runs with the canary, none without: both rates at Clopper and Pearson's."""
    rate = 0.025 ** (1 / 1000)
    expected = 2 * stats.norm.ppf(rate)
    assert mu_lower_bound(np.ones(2000), np.zeros(2000)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("find", [mu_lower_bound, estimated_mu])
def test_equal_runs_are_not_apart(find):
    assert find(np.arange(2000), np.arange(2000)) == 0


def test_the_bound_holds_as_often_as_it_says():
    found = [mu_lower_bound(*normals(1.0, 400, seed), confidence=0.9) for seed in range(200)]
    assert np.sum(np.asarray(found) > 1.0) <= 30


@pytest.mark.parametrize(
    ("message", "make"),
    [
        (
            "need 0 < confidence < 1, got 1.0",
            lambda: mu_lower_bound([0, 1], [0, 1], confidence=1.0),
        ),
        ("at least one resample, got 0.95, 0", lambda: estimated_mu([0, 1], [0, 1], resamples=0)),
        ("need 0 < delta < 1 and 0 <= mu <= 10000, got 0", lambda: gaussian_epsilon(1.0, 0)),
        ("a vector of at least 2 finite numbers", lambda: estimated_mu([0], [0, 1])),
    ],
)
def test_errors(message, make):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()
