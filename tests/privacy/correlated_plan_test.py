"""Runs with correlated noise: what they cost, and a ledger that counts them and hands out their keys."""

import dataclasses
import re

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.tolerance import assert_bits_equal

import bk_jax
from bk_jax import mechanisms, privacy

PLAN = privacy.CorrelatedPlan(
    noise=mechanisms.BandedInverse.square_root(3),
    participation=mechanisms.MinSeparation(8, 3),
    num_examples=100,
    batch_size=10,
    delta=1e-3,
    noise_multiplier=2.0,
    pld_interval=1e-3,
)
NOISES = [
    mechanisms.BandedInverse.square_root(3),
    mechanisms.BandedToeplitz.square_root(3),
    mechanisms.BufferedToeplitz((0.5,), (0.25,)),
]


def epsilon(event, relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE):
    accountant = dp_accounting.pld.PLDAccountant(relation, value_discretization_interval=1e-3)
    return accountant.compose(event).get_epsilon(1e-3)


def test_the_whole_run_is_one_gaussian():
    assert PLAN.epsilon() == epsilon(dp_accounting.GaussianDpEvent(2.0))
    assert PLAN.epsilon(0) == 0


def test_fewer_steps_have_the_same_draws_and_a_smaller_sensitivity():
    """Of the first 3 steps an example takes part in one: its column of C, cut to 3 rows."""
    column = PLAN.noise.strategy(8)
    ratio = PLAN.sensitivity() / np.linalg.norm(column[:3])
    assert PLAN.event(3).noise_multiplier == pytest.approx(2.0 * ratio, rel=1e-12)
    assert PLAN.epsilon(3) < PLAN.epsilon(6) < PLAN.epsilon()


def test_replacing_counts_twice():
    twice = dataclasses.replace(PLAN, neighboring_relation="replace_one")
    assert twice.epsilon() == pytest.approx(epsilon(dp_accounting.GaussianDpEvent(1.0)), rel=1e-3)


BUDGET = {"target_epsilon": 3.0, "delta": 1e-4, "num_examples": 1000}


@pytest.mark.parametrize(
    "participation",
    [
        mechanisms.SingleParticipation(12),
        mechanisms.MinSeparation(12, 4),
        mechanisms.FixedEpochs(12, 4),
    ],
)
def test_a_budget_for_a_whole_run_is_that_of_one_gaussian(participation):
    """dp_accounting's own calibration of the closed form."""
    noise = mechanisms.BandedToeplitz.square_root(4)
    plan = privacy.plan_correlated(
        noise=noise, participation=participation, batch_size=250, l2_clip_norm=0.5, **BUDGET
    )
    assert 3.0 * (1 - 1e-3) <= plan.epsilon() <= 3.0
    expected = dp_accounting.get_sigma_gaussian(3.0, 1e-4)
    assert plan.noise_multiplier == pytest.approx(expected, rel=1e-3)
    assert (plan.noise, plan.participation, plan.l2_clip_norm) == (noise, participation, 0.5)


def test_a_budget_for_cyclic_batches_is_that_of_the_steps_of_one_group():
    """Three groups take 7, 7 and 6 of 20 steps: DP-SGD of 7 steps on batches three times as large."""
    of_group = privacy.plan(batch_size=150, steps=7, **BUDGET)
    plan = privacy.plan_correlated(
        noise=mechanisms.BandedToeplitz.square_root(3),
        participation=mechanisms.CyclicPoisson(20, groups=3, sampling_probability=0.15),
        batch_size=50,
        **BUDGET,
    )
    assert plan.noise_multiplier == pytest.approx(of_group.noise_multiplier, rel=1e-6)
    assert 3.0 * (1 - 1e-3) <= plan.epsilon() <= 3.0


def test_a_budget_for_replaced_records_needs_twice_the_noise():
    once, twice = (
        privacy.plan_correlated(
            noise=PLAN.noise, participation=PLAN.participation, batch_size=100,
            neighboring_relation=relation, **BUDGET,
        ).noise_multiplier
        for relation in ("add_or_remove_one", "replace_one")
    )  # fmt: skip
    assert twice == pytest.approx(2 * once, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_epsilon": 0.0}, "target_epsilon must be finite and above 0"),
        ({"target_epsilon": 1e-9}, "no noise multiplier below 1e"),
        ({"delta": 0.1}, "delta must be below 1 / num_examples"),
        (
            {"noise": mechanisms.BandedToeplitz((1.0, 0.5, 0.7, 0.1))},
            "is known for examples that come",
        ),
    ],
)
def test_budgets_that_cannot_be_met(change, message):
    known = {"noise": PLAN.noise, "participation": PLAN.participation, "batch_size": 100}
    with pytest.raises(ValueError, match=message):
        privacy.plan_correlated(**known | BUDGET | change)


def test_a_plan_says_what_it_rests_on():
    text = PLAN.describe()
    for part in ("after 8 steps", "MinSeparation(steps=8, separation=3", "stores 0 arrays", "pld"):
        assert part in text


@pytest.mark.parametrize("noise", NOISES)
def test_a_ledger_keeps_the_plan(noise, tmp_path):
    plan = dataclasses.replace(PLAN, noise=noise)
    with privacy.open_ledger(tmp_path / "run.ledger", plan) as ledger:
        saved = ledger.checkpoint()
    with privacy.open_ledger(tmp_path / "run.ledger", plan, checkpoint=saved) as ledger:
        assert ledger.plan == plan
        ledger.take()
        assert ledger.epsilon() == plan.epsilon(1)


def test_a_ledger_refuses_another_plan(tmp_path):
    with privacy.open_ledger(tmp_path / "run.ledger", PLAN):
        pass
    other = dataclasses.replace(PLAN, noise=mechanisms.BandedInverse.square_root(2))
    with pytest.raises(privacy.LedgerError, match=r"noise: .* -> "):
        privacy.open_ledger(tmp_path / "run.ledger", other)
    poisson = privacy.PrivacyPlan(
        num_examples=100, batch_size=10, steps=8, delta=1e-3, noise_multiplier=2
    )
    with pytest.raises(privacy.LedgerError, match="kind: CorrelatedPlan -> None"):
        privacy.open_ledger(tmp_path / "run.ledger", poisson)


def test_recent_keys_are_those_of_the_steps(tmp_path):
    with privacy.open_ledger(tmp_path / "run.ledger", PLAN) as ledger:
        with pytest.raises(privacy.LedgerError, match="no step has been taken"):
            ledger.recent_noise_keys(3)
        steps = [ledger.take() for _ in range(4)]
        recent = jax.random.key_data(ledger.recent_noise_keys(3))
        own = [jax.random.key_data(step.noise_key) for step in reversed(steps[1:])]
        np.testing.assert_array_equal(recent, np.stack(own))
        with pytest.raises(ValueError, match="count must be a whole number of at least 1"):
            ledger.recent_noise_keys(0)
        partition = jax.random.key_data(ledger.partition_key())
        keys = [k for step in steps for k in (step.noise_key, step.sampling_key)]
        assert not any((jax.random.key_data(k) == partition).any() for k in keys)


def loss_fn(w, x):
    return jnp.sum(w * x)


def train(path, plan, key, stops):
    """A run that is closed and opened again after the given steps; returns all noisy gradients."""
    grad_fn = bk_jax.dp_value_and_grad(loss_fn, **plan.options())
    private = plan.release(grad_fn)
    sums, state, saved, released = np.zeros(40, np.float32), None, None, []
    state = private.init(sums)
    for stop in (*stops, plan.steps):
        given = {"key": key} if saved is None else {"checkpoint": saved}
        with privacy.open_ledger(path, plan, **given) as ledger:
            while ledger.steps < stop:
                step = ledger.take()
                keys = ledger.recent_noise_keys(plan.noise.keys_needed)
                grads, state = private.release(sums, state, keys=keys, step=step.number)
                released.append(np.asarray(grads))
            saved = ledger.checkpoint()
        state = jax.tree.map(np.asarray, state)
    return np.stack(released)


@pytest.mark.parametrize("noise", NOISES)
def test_a_resumed_run_has_the_same_noise(noise, tmp_path):
    plan, key = dataclasses.replace(PLAN, noise=noise), bk_jax.random.key(5)
    whole = train(tmp_path / "a.ledger", plan, key, ())
    parts = train(tmp_path / "b.ledger", plan, key, (2, 5))
    assert_bits_equal(whole, parts)
    assert len(np.unique(whole)) == whole.size


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PLAN.epsilon(9), "the plan has 8 steps, got steps=9"),
        (
            lambda: PLAN.release(bk_jax.dp_value_and_grad(loss_fn)),
            "grad_fn has the noise multiplier 1, the plan 2",
        ),
        (
            lambda: dataclasses.replace(PLAN, noise=mechanisms.BandedToeplitz((1.0, 0, 0, 2.0))),
            "never increase; these are not",
        ),
        (lambda: dataclasses.replace(PLAN, delta=0.5), "delta must be below 1 / num_examples"),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()
