"""How long a run may take, said before it starts: roughly, and at most.

A comparison that has a result took as long as that says. Of the others only a guess is possible: time
to measure, and to compile every program.
"""

from __future__ import annotations

from benchmarks.suite.comparisons import Comparison
from benchmarks.suite.store import Store

COMPILATION = 15.0  # seconds; GPT2-small took 2 to 8, the largest take minutes
SEARCH = 5  # programs until a largest batch is found


def guess(one: Comparison) -> float:
    """Seconds of a comparison that was never run.

    >>> guess(Comparison("a", "time", "mlp", {}, ("auto",), budget=10.0))
    40.0
    """
    programs = len(one.steps) + 1
    if one.kind == "largest":
        programs *= SEARCH + 2 * (len(one.limits) - 1)
    measuring = one.budget if one.kind not in ("memory", "largest") else 0.0
    return min(60 * one.minutes, measuring + COMPILATION * programs)


def seconds(one: Comparison, store: Store) -> float:
    """What it took before, else a guess."""
    before = store.load(one.name) or {}
    return min(before.get("took", guess(one)), 60 * one.minutes)


def describe(todo: list[Comparison], store: Store) -> str:
    """One line about a whole run."""
    expected = sum(seconds(one, store) for one in todo)
    most = sum(60 * one.minutes for one in todo)
    known = sum("took" in (store.load(one.name) or {}) for one in todo)
    return (
        f"{len(todo)} comparisons, roughly {_text(expected)} (very roughly: {known} of them were timed "
        f"before), at most {_text(most)}; interrupt at any time, --resume goes on"
    )


def _text(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
