"""What `fit` costs over its bare step: turns, clocks and words. No time is asserted."""

import pytest

from benchmarks.steps import fit_benchmark, step_models
from bk_jax.overhead.timing import summarize


def test_fit_and_its_bare_step_take_turns(tmp_path):
    task = step_models.make("mlp", batch=24, width=8, depth=1)
    plan = fit_benchmark.plan_of(4, 24, steps=6)
    found = fit_benchmark.measure(task, plan, 2, 3, tmp_path / "run")
    assert found.timing.pairs == 2  # of three chunks; the first one also compiles
    assert found.timing.seconds > 0 < found.timing.baseline
    assert all(seconds > 0 for seconds in found.parts.values())
    assert fit_benchmark.Ledger.take.__name__ == "take"  # the clocks are gone


@pytest.mark.parametrize(("seconds", "verdict"), [(1.03, "within 1.03"), (1.04, "above 1.03")])
def test_the_verdict_is_that_of_the_ratio(seconds, verdict):
    found = fit_benchmark.Found(summarize([(1.0, seconds)]), {"sampling": 0.002})
    text = fit_benchmark.describe(found)
    assert verdict in text
    assert text.endswith("held up by, ms per step: sampling 2.00")


def test_turns_count_what_came_between_them():
    now = iter([0.0, 4.0, 5.0, 11.0, 13.0, 14.0])  # begin, end, since; twice
    turns = fit_benchmark.Turns(lambda: None, 2, lambda: next(now))
    turns({})
    turns({})
    assert turns.pairs == [(1.0, 3.0)]  # the bare step took 13 - 11, fit 11 - 5, for two steps
