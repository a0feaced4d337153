"""Sensitivities against all patterns, and events against direct computations."""

import itertools
import math
import re

import dp_accounting
import numpy as np
import pytest
import scipy.stats

from bk_jax.mechanisms import (
    CyclicPoisson,
    FixedEpochs,
    MinSeparation,
    SingleParticipation,
    toeplitz,
)

STEPS = 8
STRATEGIES = {
    "one": np.asarray([1.0]),
    "root": toeplitz.square_root(STEPS),
    "three bands": toeplitz.square_root(3),
    "BISR": toeplitz.inverse(toeplitz.inverse_square_root(3), STEPS),
    "prefix": np.ones(STEPS),
    "signed": np.asarray([1.0, -0.5, 0.25]),
    "rising": np.asarray([1.0, 1.5, 0.5, 0.25]),
}


def patterns(separation, most):
    for count in range(1, most + 1):
        for steps in itertools.combinations(range(STEPS), count):
            if all(b - a >= separation for a, b in itertools.pairwise(steps)):
                yield steps


def worst(strategy, chosen):
    """The largest `||C u||` where `u` is +1 or -1 at the steps of a pattern.

    Gradients of several steps are vectors. Where no two columns of `C` have a negative product, vectors
    that all agree are the worst; columns that share no row do not care.
    """
    dense = toeplitz.matrix(strategy, STEPS)
    signs = [np.asarray(s) for s in itertools.product([1, -1], repeat=len(chosen))]
    return max(np.linalg.norm(dense[:, list(chosen)] @ s) for s in signs)


@pytest.mark.parametrize("name", STRATEGIES)
def test_single_participation(name):
    strategy = STRATEGIES[name]
    expected = max(worst(strategy, (step,)) for step in range(STEPS))
    assert SingleParticipation(STEPS).sensitivity(strategy) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("separation", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("most", [None, 1, 2])
@pytest.mark.parametrize("name", STRATEGIES)
def test_min_separation(name, separation, most):
    strategy = STRATEGIES[name]
    pattern = MinSeparation(STEPS, separation, most)
    bands = len(strategy)
    if pattern.participations > 1 and bands > separation and name in ("signed", "rising"):
        with pytest.raises(ValueError, match="never increase; these are not"):
            pattern.sensitivity(strategy)
        return
    expected = max(worst(strategy, p) for p in patterns(separation, pattern.participations))
    assert pattern.sensitivity(strategy) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("separation", [2, 3, 4])
@pytest.mark.parametrize("name", STRATEGIES)
def test_fixed_epochs(name, separation):
    strategy = STRATEGIES[name]
    pattern = FixedEpochs(STEPS, separation)
    if name == "signed" and separation == 2:
        with pytest.raises(
            ValueError, match="epochs of 2 steps only if its coefficients are not neg"
        ):
            pattern.sensitivity(strategy)
        return
    expected = max(worst(strategy, range(i, STEPS, separation)) for i in range(separation))
    assert pattern.sensitivity(strategy) == pytest.approx(expected, rel=1e-14)


def test_the_event_of_a_run_is_one_gaussian():
    """delta = Phi(1 / (2 s) - e s) - exp(e) Phi(-1 / (2 s) - e s), Balle and Wang (2018)."""
    event = MinSeparation(100, 10).event(2.0)
    accountant = dp_accounting.pld.PLDAccountant().compose(event)
    epsilon = accountant.get_epsilon(1e-5)
    phi = scipy.stats.norm.cdf
    delta = phi(0.25 - 2 * epsilon) - math.exp(epsilon) * phi(-0.25 - 2 * epsilon)
    assert delta == pytest.approx(1e-5, rel=2e-3)
    assert SingleParticipation(100).event(2.0) == FixedEpochs(100, 10).event(2.0) == event


def test_cyclic_poisson_is_the_steps_of_one_group():
    participation = CyclicPoisson(10, 3, 0.2)
    step = dp_accounting.PoissonSampledDpEvent(0.2, dp_accounting.GaussianDpEvent(2.0))
    assert participation.event(2.0) == dp_accounting.SelfComposedDpEvent(step, 4)
    assert participation.sensitivity(np.asarray([3.0, 0.0, 4.0])) == 5.0


def test_a_strategy_may_be_a_list():
    for pattern in (SingleParticipation(4), MinSeparation(4, 2), CyclicPoisson(4, 2, 0.5)):
        assert pattern.sensitivity([1.0, 0.5]) == pattern.sensitivity(np.asarray([1.0, 0.5]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SingleParticipation(0), "steps must be a whole number of at least 1"),
        (lambda: MinSeparation(5, 0), "separation must be a whole number of at least 1"),
        (lambda: MinSeparation(5, 1, 0), "max_participations must be a whole number"),
        (lambda: CyclicPoisson(5, 2, 1.5), "sampling_probability must be at most 1, got 1.5"),
        (lambda: CyclicPoisson(5, 0, 0.5), "groups must be a whole number of at least 1"),
        (
            lambda: CyclicPoisson(5, 2, 0.5).sensitivity(np.ones(3)),
            "with 2 groups needs a strategy with at most 2 bands; this one has 3",
        ),
        (lambda: MinSeparation(5, 2).sensitivity([]), "strategy must be a list of finite numbers"),
        (lambda: SingleParticipation(5).sensitivity(1.0), "strategy must be a list of finite"),
        (lambda: CyclicPoisson(5, 2, 0.5).sensitivity([0.0]), "must begin with a positive number"),
        (lambda: SingleParticipation(5).event(0.0), "noise_multiplier must be finite and above 0"),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()
