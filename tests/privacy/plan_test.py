"""Privacy plans: what they refuse, what they describe, and the epsilon that comes of it."""

from __future__ import annotations

import dataclasses
import math

import dp_accounting
import numpy as np
import pytest
import scipy.stats
from dp_accounting import dp_event

from bk_jax import privacy

SMALL = {
    "num_examples": 1000,
    "batch_size": 100,
    "steps": 20,
    "delta": 1e-5,
    "noise_multiplier": 4.0,
    "pld_interval": 1e-3,
}
BUDGET = {
    "target_epsilon": 1.0,
    "delta": 1e-5,
    "num_examples": 1000,
    "batch_size": 100,
    "steps": 10,
}


def small(**changes):
    return privacy.PrivacyPlan(**SMALL | changes)


def delta_of_gaussian(sigma, epsilon):
    """The exact delta of one Gaussian of sensitivity 1."""
    phi = scipy.stats.norm.cdf
    first = phi(0.5 / sigma - epsilon * sigma)
    return first - math.exp(epsilon) * phi(-0.5 / sigma - epsilon * sigma)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"delta": 1e-3}, ValueError, "below 1 / num_examples = 0.001, got 0.001"),
        ({"delta": 0.0}, ValueError, "delta must be finite and above 0"),
        ({"delta": math.nan}, ValueError, "delta must be finite and above 0, got nan"),
        ({"batch_size": 1001}, ValueError, "exceeds num_examples 1000"),
        ({"batch_size": 0}, ValueError, "batch_size must be finite and above 0"),
        ({"batch_size": math.inf}, ValueError, "batch_size must be finite"),
        ({"num_examples": 0}, ValueError, "num_examples must be a whole number of at least 1"),
        ({"num_examples": 1e3}, TypeError, "num_examples must be a whole number, got 1000.0"),
        ({"num_examples": True}, ValueError, "num_examples must be a whole number"),
        ({"steps": 0}, ValueError, "steps must be a whole number of at least 1"),
        ({"noise_multiplier": 0.0}, ValueError, "noise_multiplier must be finite and above 0"),
        ({"noise_multiplier": "1"}, TypeError, "noise_multiplier must be a number, got '1'"),
        ({"noise_multiplier": True}, TypeError, "noise_multiplier must be a number, got True"),
        ({"noise_multiplier": 10**400}, ValueError, "noise_multiplier must be finite and above 0"),
        ({"l2_clip_norm": math.inf}, ValueError, "l2_clip_norm must be finite"),
        ({"pld_interval": -1.0}, ValueError, "pld_interval must be finite and above 0"),
        ({"max_batch_size": 99}, ValueError, "below the expected batch_size 100"),
        ({"max_batch_size": 100.5}, TypeError, "max_batch_size must be a whole number"),
        ({"accountant": "prv"}, ValueError, "accountant must be one of 'pld', 'rdp'"),
        ({"neighboring_relation": "one"}, ValueError, "neighboring_relation must be one of"),
        (
            {"accountant": "rdp", "max_batch_size": 128},
            ValueError,
            "no Renyi analysis of truncated",
        ),
        (
            {"accountant": "rdp", "neighboring_relation": "replace_one"},
            ValueError,
            "no Renyi analysis of Poisson batches for neighboring_relation='replace_one'",
        ),
    ],
)
def test_nonsense_is_refused_with_a_reason(change, error, message):
    with pytest.raises(error, match=message):
        small(**change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_epsilon": 0}, "target_epsilon must be finite and above 0, got 0"),
        ({"target_epsilon": math.nan}, "target_epsilon must be finite"),
        ({"target_epsilon": math.inf}, "target_epsilon must be finite"),
        ({"epochs": 1}, "either epochs or steps; got epochs=1 and steps=10"),
        ({"steps": None}, "either epochs or steps"),
        ({"steps": None, "epochs": -1.0}, "epochs must be finite and above 0"),
        ({"max_batch_size": "large"}, "max_batch_size must be one of 'auto'"),
        ({"delta": 0.01}, "below 1 / num_examples"),
        ({"target_epsilon": 1e-9}, "no noise multiplier below 1e.06"),
    ],
)
def test_budgets_that_make_no_sense_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        privacy.plan(**BUDGET | change)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": -1}, "steps must be a whole number of at least 0"),
        ({"group_size": 0}, "group_size must be a whole number of at least 1"),
        ({"group_size": 1001}, "group_size 1001 exceeds num_examples 1000"),
    ],
)
def test_questions_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        small().epsilon(**arguments)


# --- events ---------------------------------------------------------------------------------------


def test_event_of_poisson_batches():
    gaussian = dp_accounting.GaussianDpEvent(4.0)
    step = dp_accounting.PoissonSampledDpEvent(0.1, gaussian)
    assert small().event() == dp_accounting.SelfComposedDpEvent(step, 20)
    assert small().event(7) == dp_accounting.SelfComposedDpEvent(step, 7)
    assert small().sampling == "poisson"


def test_event_of_truncated_batches_is_dp_accountings_own():
    step = dp_event.TruncatedSubsampledGaussianDpEvent(1000, 0.1, 128, 4.0)
    plan = small(max_batch_size=128)
    assert plan.event(3) == dp_accounting.SelfComposedDpEvent(step, 3)
    assert plan.sampling == "truncated poisson"


def test_options_are_what_the_gradient_needs():
    plan = small(l2_clip_norm=0.5)
    assert plan.options() == {"l2_clip_norm": 0.5, "noise_multiplier": 4.0, "normalize_by": 100.0}


def test_numpy_numbers_become_plain_ones():
    plan = small(num_examples=np.int64(1000), batch_size=np.float32(100), steps=np.int32(20))
    assert plan == small()
    assert {type(value) for value in dataclasses.asdict(plan).values()} <= {
        int,
        float,
        str,
        type(None),
    }


# --- epsilon --------------------------------------------------------------------------------------


def test_no_steps_spend_nothing():
    assert small().epsilon(0) == 0.0


def test_epsilon_grows_with_steps_and_goes_on_after_the_plan():
    values = [small().epsilon(steps) for steps in (1, 10, 20, 40)]
    assert values == sorted(values)
    assert len(set(values)) == 4
    assert small().epsilon() == small().epsilon(20)


def test_whole_batches_give_the_epsilon_of_the_gaussian_mechanism():
    plan = small(batch_size=1000, steps=1, noise_multiplier=2.0, pld_interval=1e-4)
    assert delta_of_gaussian(2.0, plan.epsilon()) == pytest.approx(1e-5, rel=1e-3)


def test_replacing_counts_twice_when_all_are_sampled():
    replaced = small(batch_size=1000, steps=1, neighboring_relation="replace_one")
    removed = small(batch_size=1000, steps=1, noise_multiplier=2.0)
    assert replaced.epsilon() == pytest.approx(removed.epsilon(), rel=1e-3)
    special = small(batch_size=1000, steps=1, neighboring_relation="replace_special")
    assert special.epsilon() == small(batch_size=1000, steps=1).epsilon()


def test_renyi_is_looser_than_the_privacy_loss_distribution():
    tight, loose = small(), small(accountant="rdp")
    assert tight.epsilon() < loose.epsilon() < 1.5 * tight.epsilon()


def test_truncation_costs_more_the_tighter_it_is():
    any_size = small().epsilon()
    values = [small(max_batch_size=size).epsilon() for size in (100, 110, 128, 1000)]
    assert values == sorted(values, reverse=True)
    assert values[-1] == pytest.approx(any_size, rel=1e-12)
    assert values[0] > 1.1 * any_size


# --- groups ---------------------------------------------------------------------------------------


def test_a_group_of_one_is_one_record():
    assert small().epsilon(group_size=1) == small().epsilon()


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_special"])
def test_a_group_in_whole_batches_moves_the_sum_by_its_size(relation):
    whole = small(batch_size=1000, steps=1, neighboring_relation=relation, pld_interval=0.02)
    alone = dataclasses.replace(whole, noise_multiplier=whole.noise_multiplier / 3)
    assert whole.epsilon(group_size=3) == pytest.approx(alone.epsilon(), rel=1e-3)


def test_the_exact_group_epsilon_is_below_the_general_bound():
    plan = small(steps=5, pld_interval=5e-3)
    general = dataclasses.replace(plan, max_batch_size=1000).epsilon(group_size=2)
    assert plan.epsilon() < plan.epsilon(group_size=2) < general


@pytest.mark.parametrize(
    "change",
    [{"neighboring_relation": "replace_one"}, {"accountant": "rdp"}, {"max_batch_size": 128}],
    ids=["replace_one", "rdp", "truncated"],
)
def test_the_general_bound_holds_for_the_delta_of_one_record(change):
    plan = small(steps=5, **change)
    group = plan.epsilon(group_size=2)
    one = privacy.accounting.accountant(plan).compose(plan.event()).get_delta(group / 2)
    assert one * (math.exp(group) - 1) / (math.exp(group / 2) - 1) <= 1e-5
    assert group > 2 * plan.epsilon()


def test_a_group_that_nothing_protects_has_infinite_epsilon():
    plan = small(steps=5, noise_multiplier=0.6, max_batch_size=1000, pld_interval=0.05)
    assert plan.epsilon(group_size=40) == math.inf


def test_the_search_for_the_general_bound_ends_where_noise_hides_everything():
    plan = small(steps=1, noise_multiplier=1e7, accountant="rdp", batch_size=1000)
    assert 0 < plan.epsilon(group_size=2) < 0.1
    assert privacy.accounting._least(lambda single: True) == privacy.accounting.LEAST_EPSILON


# --- calibration ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"max_batch_size": 128},
        {"neighboring_relation": "replace_one"},
        {"target_epsilon": 0.02},
        {"target_epsilon": 20.0, "steps": 3},
    ],
    ids=str,
)
def test_the_noise_is_the_least_that_keeps_the_budget(change):
    budget = BUDGET | change
    plan = privacy.plan(**budget)
    assert plan.epsilon() <= budget["target_epsilon"]
    less = dataclasses.replace(plan, noise_multiplier=plan.noise_multiplier * 0.999)
    assert less.epsilon() > budget["target_epsilon"]


def test_epochs_are_passes_over_the_data():
    assert privacy.plan(**BUDGET | {"steps": None, "epochs": 1.3}).steps == 13
    assert privacy.plan(**BUDGET | {"steps": None, "epochs": 0.01}).steps == 1


def test_automatic_room_costs_next_to_nothing():
    plan = privacy.plan(**BUDGET, max_batch_size="auto")
    assert plan.max_batch_size % 8 == 0
    assert 100 < plan.max_batch_size < 250
    unlimited = dataclasses.replace(plan, max_batch_size=None)
    assert plan.epsilon() == pytest.approx(unlimited.epsilon(), rel=1e-4)


def test_automatic_room_is_at_most_the_data():
    plan = privacy.plan(**BUDGET | {"batch_size": 1000}, max_batch_size="auto")
    assert plan.max_batch_size == 1000


def test_the_grid_adds_less_than_a_thousandth():
    plan = privacy.plan(**BUDGET)
    finer = dataclasses.replace(plan, pld_interval=plan.pld_interval / 20)
    assert finer.epsilon() <= plan.epsilon() <= 1.001 * finer.epsilon()


# --- description ----------------------------------------------------------------------------------


def test_the_description_names_everything_that_it_rests_on():
    text = small(max_batch_size=128, l2_clip_norm=0.5).describe()
    assert f"({small(max_batch_size=128).epsilon():.3g}, 1e-05)" in text
    for part in ("20 steps", "add or remove one", "1000 examples", "0.1", "cut to 128", "pld"):
        assert part in text
    assert "truncated poisson" in text
    assert "norm 0.5" in text
