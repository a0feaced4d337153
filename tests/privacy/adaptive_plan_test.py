"""Plans with adaptive clipping: the budget is for gradient and counts together."""

from __future__ import annotations

import dataclasses
import re

import dp_accounting
import pytest

from bk_jax import mechanisms, privacy
from bk_jax.privacy.plans import from_fields, to_fields
from bk_jax.privacy.record import Record

CLIP = mechanisms.AdaptiveClipping(batch_size=100, quantile=0.6, count_stddev=4.0, groups=3)


def make(**changes):
    fields = {"num_examples": 1000, "batch_size": 100, "steps": 20, "delta": 1e-5}
    fields |= {"noise_multiplier": 2.0, "pld_interval": 1e-2}
    return privacy.PrivacyPlan(**fields | changes)


PLAN = make(adaptive=CLIP)


def test_the_options_have_what_is_left_for_the_gradient():
    """1/4 = 1/sigma^2 + 3 / 8^2."""
    sigma = PLAN.options()["noise_multiplier"]
    assert sigma == PLAN.gradient_multiplier == pytest.approx((1 / 4 - 3 / 64) ** -0.5, rel=1e-12)
    assert CLIP.combined(sigma) == pytest.approx(2.0, rel=1e-12)
    assert make().gradient_multiplier == 2.0


@pytest.mark.parametrize("options", [{}, {"max_batch_size": 160}, {"accountant": "rdp"}])
def test_epsilon_is_that_of_the_plan_without_it(options):
    assert make(adaptive=CLIP, **options).epsilon() == make(**options).epsilon()


def test_epsilon_is_that_of_all_queries_composed_one_by_one():
    """On whole batches: gradients with the options' noise, and counts of sensitivity 1/2."""
    plan = make(batch_size=1000, adaptive=dataclasses.replace(CLIP, batch_size=1000))
    sigma = plan.options()["noise_multiplier"]
    queries = [dp_accounting.GaussianDpEvent(sigma)]
    queries += [dp_accounting.GaussianDpEvent(4.0 / 0.5)] * 3
    steps = dp_accounting.SelfComposedDpEvent(dp_accounting.ComposedDpEvent(queries), 20)
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-2)
    expected = accountant.compose(steps).get_epsilon(1e-5)
    assert plan.epsilon() == pytest.approx(expected, rel=1e-2)


def test_a_budget_is_for_both_together():
    budget = {"num_examples": 1000, "batch_size": 100, "steps": 5, "delta": 1e-5}
    plain = privacy.plan(target_epsilon=4, **budget)
    both = privacy.plan(target_epsilon=4, adaptive=CLIP, **budget)
    assert both == dataclasses.replace(plain, adaptive=CLIP)
    assert both.options()["noise_multiplier"] > plain.options()["noise_multiplier"]


def test_the_words_say_it():
    assert (
        "gradients: clipped to norms that start at 1 and follow the quantile 0.6; noise of standard "
        "deviation 2.219 x norm on their sum and 4 on each of 3 counts of unclipped ones, together a "
        "noise multiplier of 2\n"
    ) in PLAN.describe()
    one = make(adaptive=dataclasses.replace(CLIP, groups=1))
    assert "and 4 on the count of unclipped ones" in one.describe()


def test_the_ledger_has_it(path):
    with privacy.open_ledger(path, PLAN) as ledger:
        ledger.take()
        place = ledger.checkpoint()
    with privacy.open_ledger(path, checkpoint=place) as ledger:
        assert ledger.plan == PLAN
        assert ledger.plan.options() == PLAN.options()
    for other, change in [
        (make(), "adaptive: {'kind': 'AdaptiveClipping', "),
        (make(adaptive=dataclasses.replace(CLIP, quantile=0.5)), "'quantile': 0.5"),
    ]:
        with pytest.raises(privacy.LedgerError, match=re.escape(change)):
            privacy.open_ledger(path, other, checkpoint=place)


def test_a_ledger_without_it_says_that_it_comes_in(path):
    privacy.open_ledger(path, make()).close()
    with pytest.raises(privacy.LedgerError, match=r"adaptive: None -> {'kind'"):
        privacy.open_ledger(path, PLAN)


def test_ledgers_from_before_there_was_any_are_read():
    """Their plans have no such field, and a page must be what this version would write."""
    assert "adaptive" not in to_fields(make())
    assert from_fields(to_fields(make())) == make()
    assert from_fields(to_fields(PLAN)) == PLAN
    record = Record(0, 1, 2, tuple(range(8)), PLAN, None)
    assert record.to_page().decode().count('"AdaptiveClipping"') == 1


@pytest.mark.parametrize(
    ("error", "changes", "message"),
    [
        (TypeError, {"adaptive": 0.5}, "must be a bk_jax.mechanisms.AdaptiveClipping, such as"),
        (
            ValueError,
            {"batch_size": 50},
            "made for batch_size=100, but the plan has 50: pass Adaptive",
        ),
        (ValueError, {"noise_multiplier": 8.0}, "count_stddev 4 spends all of noise_multiplier 8"),
    ],
)
def test_errors(error, changes, message):
    with pytest.raises(error, match=re.escape(message)):
        make(**{"adaptive": CLIP} | changes)
