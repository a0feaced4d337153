"""One-run audits: their bound against a direct computation, and broken mechanisms that they find."""

from __future__ import annotations

import math
import re

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bk_jax
from bk_jax.audit import guesses_epsilon, one_run_epsilon
from bk_jax.audit.one_run import chance_of_guesses

DELTA = 1e-5
CANARIES = 1000
EYE = np.eye(CANARIES, dtype=np.float32)  # each canary moves a parameter of its own
W = np.zeros(CANARIES, np.float32)
FLIPS = np.random.default_rng(7).integers(0, 2, CANARIES).astype(bool)


def chance_directly(right, guesses, canaries, epsilon, delta):
    """The formula of the theorem, term by term, in exact binomial coefficients."""
    rate = math.exp(epsilon) / (1 + math.exp(epsilon))
    chance = [
        math.comb(guesses, k) * rate**k * (1 - rate) ** (guesses - k) for k in range(guesses + 1)
    ]
    near = max(sum(chance[right - i : right]) / i for i in range(1, right + 1))
    return min(1.0, sum(chance[right:]) + 2 * canaries * delta * near)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("delta", [0.0, 1e-4])
@pytest.mark.parametrize("right", [1, 2, 17, 29, 30])
def test_the_chance_of_right_guesses(right, delta, epsilon):
    expected = chance_directly(right, 30, 50, epsilon, delta)
    assert chance_of_guesses(right, 30, 50, epsilon, delta) == pytest.approx(expected, rel=1e-9)


def test_no_right_guess_says_nothing():
    assert chance_of_guesses(0, 30, 50, 1.0, 0.0) == 1
    assert guesses_epsilon(0, 30, canaries=50, delta=0.0) == 0


def test_all_guesses_right():
    """Each is right with chance q, so q^100 must be at least 0.05."""
    rate = 0.05 ** (1 / 100)
    expected = math.log(rate / (1 - rate))
    assert guesses_epsilon(100, 100, canaries=100, delta=0.0) == pytest.approx(expected, rel=1e-9)


def test_the_bound_is_where_the_chance_is_the_risk():
    bound = guesses_epsilon(80, 100, canaries=200, delta=1e-4, confidence=0.9)
    assert chance_of_guesses(80, 100, 200, bound, 1e-4) == pytest.approx(0.1, rel=1e-6)


def accounted(noise_multiplier):
    event = dp_accounting.GaussianDpEvent(noise_multiplier)
    return dp_accounting.pld.PLDAccountant().compose(event).get_epsilon(DELTA)


def loss_fn(w, x):
    return jnp.sum(x @ w)


def released(included, key, scale=1.0, **options):
    """One noisy gradient of the canaries that are in; canary `i` adds to parameter `i` alone."""
    grad_fn = bk_jax.dp_value_and_grad(loss_fn, **options)
    padding = jnp.asarray(~included)
    return np.asarray(jax.jit(grad_fn)(W, scale * EYE, key=key, is_padding_example=padding)[1])


def bound(scores, included=FLIPS):
    return one_run_epsilon(scores, included, delta=DELTA)


def test_a_private_gradient_stays_below_its_epsilon():
    found = bound(released(FLIPS, bk_jax.random.key(0), scale=100.0, noise_multiplier=1.0))
    assert 0.5 < found < accounted(1.0)


def test_noise_that_is_too_small_is_found():
    """Accounted for with 2, made with 0.2."""
    assert bound(released(FLIPS, bk_jax.random.key(1), noise_multiplier=0.2)) > accounted(2.0)


def test_clipping_that_is_missing_is_found():
    """Gradients of norm 20 with noise for the clip norm 1: as good as no noise."""
    options = {"l2_clip_norm": 20.0, "noise_multiplier": 2.0 / 20.0}
    scores = released(FLIPS, bk_jax.random.key(2), scale=20.0, **options)
    assert bound(scores) > accounted(2.0)
    clipped = released(FLIPS, bk_jax.random.key(2), scale=20.0, noise_multiplier=2.0)
    assert bound(clipped) < accounted(2.0)


def test_a_key_that_two_steps_share_is_found():
    """The noise cancels in the difference of a step with canaries and one without."""
    nobody = np.zeros(CANARIES, bool)

    def difference(first, second):
        step = [released(i, k, noise_multiplier=2.0) for i, k in ((FLIPS, first), (nobody, second))]
        return step[0] - step[1]

    shared, other = bk_jax.random.key(3), bk_jax.random.key(4)
    assert bound(difference(shared, shared)) > accounted(2.0)
    assert bound(difference(shared, other)) < accounted(2.0)


def test_the_bound_holds_as_often_as_it_says():
    """Coin flips and randomized response: epsilon is exceeded in at most 1 of 20 runs, about."""
    rng, epsilon = np.random.default_rng(0), 1.0
    truth = 1 / (1 + math.exp(-epsilon))
    too_large = 0
    for _ in range(200):
        included = rng.integers(0, 2, 300).astype(bool)
        answers = np.where(rng.random(300) < truth, included, ~included)
        noise = 1e-3 * rng.random(300)  # which of equal answers are guessed
        found = one_run_epsilon(answers + noise, included, delta=0.0, guesses=300)
        too_large += found > epsilon
    assert 0 < too_large <= 20


def test_scores_of_nobody_say_nothing():
    assert bound(np.random.default_rng(1).normal(size=CANARIES)) < 0.5


@pytest.mark.parametrize(
    ("error", "message", "make"),
    [
        (
            ValueError,
            "got shapes (3,) and (2,)",
            lambda: one_run_epsilon([1, 2, 3], [True, False], delta=0.0),
        ),
        (
            TypeError,
            "included must say True or False of each canary, got int64",
            lambda: one_run_epsilon([1, 2], [1, 0], delta=0.0),
        ),
        (
            ValueError,
            "scores must be finite",
            lambda: one_run_epsilon([1, np.nan], [True, False], delta=0.0),
        ),
        (
            ValueError,
            "guesses must be between 1 and 2, got 3",
            lambda: one_run_epsilon([1, 2], [True, False], delta=0.0, guesses=3),
        ),
        (
            ValueError,
            "got 3 of 2 of 5",
            lambda: guesses_epsilon(3, 2, canaries=5, delta=0.0),
        ),
        (
            ValueError,
            "need 0 <= delta < 1 and 0 < confidence < 1, got 1.0, 0.95",
            lambda: guesses_epsilon(1, 2, canaries=5, delta=1.0),
        ),
    ],
)
def test_errors(error, message, make):
    with pytest.raises(error, match=re.escape(message)):
        make()
