"""How the suite times programs, sees their memory and searches the largest batch.

No time is asserted.
"""

import pytest
from support.process import run_python

from benchmarks.ops.resident import peak_while
from benchmarks.suite import comparisons, largest
from bk_jax.overhead import timing


def test_every_candidate_runs_between_two_baselines():
    calls = []
    runs = {name: lambda name=name: calls.append(name) for name in ("a", "b")}
    timed = timing.compare_all(lambda: calls.append("p"), runs, budget=0.0, least=2)
    assert {name: found.pairs for name, found in timed.items()} == {"a": 2, "b": 2}
    order = [name for i, name in enumerate(calls) if i == 0 or name != calls[i - 1]]
    assert "".join(order) == "pab" + "papbp" + "bpap"


def test_the_baseline_among_the_candidates_has_no_timer_of_its_own(monkeypatch):
    made = []

    class Counted(timing.Timer):
        def __init__(self, run, wait):
            made.append(run)
            super().__init__(run, wait)

    def plain():
        return sum(range(1000))

    def other():
        return sum(range(2000))

    monkeypatch.setattr(timing, "Timer", Counted)
    runs = {"plain": plain, "other": other}
    assert list(timing.compare_all(plain, runs, budget=0.0)) == ["plain", "other"]
    assert made == [plain, other]


def test_ratios_are_medians_over_turns():
    found = timing.summarize([(1.0, 2.0), (1.0, 3.0), (1.0, 10.0)])
    assert comparisons.as_result(found) == {
        "seconds": 3.0, "ratio": 3.0, "low": 2.0, "high": 10.0, "turns": 3,
    }  # fmt: skip
    assert found.baseline == 1.0


def test_programs_of_other_frameworks_are_timed_without_jax():
    run_python("""
        import sys
        from bk_jax.overhead.timing import compare_all
        timed = compare_all(int, {"plain": int}, budget=0.0, wait=lambda out: out)
        assert timed["plain"].pairs == 4 and "jax" not in sys.modules
    """)


def test_resident_memory_sees_an_array():
    size = 64 << 20
    small, large = peak_while(lambda: None), peak_while(lambda: bytearray(size).count(1))
    if small is None:
        pytest.skip("this kernel does not say")
    assert large - small > size // 2


@pytest.mark.parametrize("tolerance", [0.0, 0.01])
@pytest.mark.parametrize(
    ("memory", "limit", "expected"),
    [
        (lambda b: 10 + 3 * b, 9, 0),
        (lambda b: 10 + 3 * b, 13, 1),
        (lambda b: 10 + 3 * b, 100, 30),
        (lambda b: 10 + 3 * b, 3_000_010, 1_000_000),
        (lambda b: b * b, 10_000, 100),
        (lambda b: 64 * ((b + 63) // 64), 1000, 960),
    ],
)
def test_the_largest_batch_fits_and_the_next_does_not(memory, limit, expected, tolerance):
    found = largest.largest_batch(memory, limit, tolerance)
    assert expected * (1 - tolerance) - 1 < found <= expected
    if tolerance == 0:
        assert found == expected


def test_another_limit_starts_from_what_is_known():
    def memory(batch):
        asked.append(batch)
        known[batch] = 1000 + 7 * batch
        return known[batch]

    known: dict[int, int] = {}
    asked: list[int] = []
    assert 990 < largest.largest_batch(memory, 8_000) <= 1000
    first = len(asked)
    assert 3251 < largest.largest_batch(memory, 24_000, known=known) <= 3285
    assert len(asked) - first <= 2
    assert largest.largest_batch(memory, 8_000, known=known) in asked[:first]
    assert len(asked) - first <= 2


def test_few_batches_are_compiled():
    asked = []
    largest.largest_batch(lambda b: asked.append(b) or 1000 + 7 * b, 1_000_000)
    assert len(asked) <= 5
