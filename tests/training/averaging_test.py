"""Averages of parameters: small integers by hand, and what the trainer does with them."""

from __future__ import annotations

import jax
import numpy as np
import optax
import pytest
from support.fits import ANY_SIZE, KEY, OPTIMIZER, PLAN, equal, fit

from bk_jax import training


def steps_of(optimizer, grads):
    """Averages after each gradient, from parameters 0 and SGD with rate 1."""
    params, found = {"w": np.zeros(2, np.float32)}, []
    state = optimizer.init(params)
    for grad in grads:
        updates, state = optimizer.update({"w": np.full(2, grad, np.float32)}, state, params)
        params = optax.apply_updates(params, updates)
        found.append(float(training.average_of(state)["w"][0]))
    return found


def test_the_start_is_forgotten_soon():
    """Kept are 1/10, then 2/11 of the average; parameters are 10 and 21."""
    found = steps_of(training.averaged(optax.sgd(1.0), 0.99), [-10.0, -11.0])
    assert found == pytest.approx([9.0, 9 * 2 / 11 + 21 * 9 / 11], rel=1e-6)


def test_a_small_decay_is_used_from_the_first_step():
    found = steps_of(training.averaged(optax.sgd(1.0), 0.0625), [-16.0, -16.0])
    assert found == [15.0, 15 / 16 + 30.0]


@pytest.mark.parametrize("plan", [PLAN, ANY_SIZE], ids=["one program", "parts"])
def test_the_trainer_returns_the_average_of_the_same_run(plan, tmp_path):
    seen = []

    def evaluate(params):
        seen.append(jax.tree.map(np.asarray, params))
        return {"b": params["b"]}

    optimizer = training.averaged(OPTIMIZER, 0.5)
    options = {"plan": plan, "key": KEY, "report_every": 1}
    plain = fit(tmp_path / "plain", evaluate=evaluate, **options)
    passed, seen = seen, []
    result = fit(tmp_path / "averaged", evaluate=evaluate, optimizer=optimizer, **options)
    average = jax.tree.map(lambda x: 0.0 * x, passed[0])
    for count, params in enumerate(passed):
        kept = min(0.5, (1 + count) / (10 + count))
        average = jax.tree.map(lambda a, p: kept * a + (1 - kept) * p, average, params)  # noqa: B023
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7), result.params, average
    )
    equal(result.params, seen[-1])
    equal(result.params, training.average_of(result.optimizer_state))
    assert np.any(np.asarray(result.params["w"]) != np.asarray(plain.params["w"]))


def test_a_resumed_run_has_the_same_average(tmp_path):
    options = {"key": KEY, "optimizer": training.averaged(OPTIMIZER, 0.9)}
    fit(tmp_path / "parts", stop_at_epsilon=PLAN.epsilon(5), **options)
    whole, parts = fit(tmp_path / "whole", **options), fit(tmp_path / "parts", **options)
    equal(whole.params, parts.params)


def test_other_optimizers_have_no_average():
    state = optax.sgd(1.0).init(np.zeros(1))
    assert training.average_of(state) is None
    assert training.average_of(state, otherwise=3) == 3


@pytest.mark.parametrize("decay", [1, 1.5])
def test_a_decay_of_one_is_refused(decay):
    with pytest.raises(ValueError, match=r"decay must be less than 1, such as 0\.99, got"):
        training.averaged(optax.sgd(1.0), decay)


@pytest.mark.parametrize("decay", [0, -1, float("nan")])
def test_a_decay_that_is_not_positive_is_refused(decay):
    with pytest.raises(ValueError, match="decay must be finite and above 0"):
        training.averaged(optax.sgd(1.0), decay)
