"""One-run audits by f-DP: against jax_privacy's numbers, and how often the bound holds."""

import math
import re

import numpy as np
import pytest

from bk_jax.audit import gaussian_epsilon, one_run_epsilon, one_run_mu
from bk_jax.audit.one_run_gaussian import guesses_mu

# jax_privacy 2.0.0: auditing._epsilon_one_run_fdp(0.0, canaries, guesses, right, risk, 1e-5)
PEERS = [
    (90, 100, 200, 0.05, 3.1435193771563656),
    (150, 200, 300, 0.05, 1.597572463866003),
    (650, 1000, 1000, 0.01, 0.7452516121118178),
    (60, 100, 100, 0.05, 0.07900512536494847),
]


@pytest.mark.parametrize(("right", "guesses", "canaries", "risk", "expected"), PEERS)
def test_it_is_the_bound_of_jax_privacy(right, guesses, canaries, risk, expected):
    mu = guesses_mu(right, guesses, canaries=canaries, risk=risk)
    assert gaussian_epsilon(mu, 1e-5) == pytest.approx(expected, abs=1e-3)


def test_chance_refutes_nothing():
    assert guesses_mu(50, 100, canaries=100, risk=0.05) == 0
    assert guesses_mu(0, 100, canaries=100, risk=0.05) == 0


def test_the_bound_holds_as_often_as_it_says_and_shows_more():
    """Gaussian noise of deviation 1: mu is 1."""
    rng, found = np.random.default_rng(0), []
    for _ in range(40):
        included = rng.integers(0, 2, 300).astype(bool)
        scores = included + rng.normal(size=300)
        found.append(one_run_mu(scores, included, guesses=100))
    assert sum(mu > 1 for mu in found) <= 5
    assert np.mean(found) > 0.3
    epsilon = one_run_epsilon(scores, included, guesses=100, delta=1e-5)
    assert gaussian_epsilon(found[-1], 1e-5) > epsilon


def test_errors():
    with pytest.raises(ValueError, match=re.escape("need 0 < confidence < 1, got 2")):
        one_run_mu([1.0, 2.0], [True, False], confidence=2)
    with pytest.raises(ValueError, match="scores must be finite"):
        one_run_mu([1.0, math.nan], [True, False])
