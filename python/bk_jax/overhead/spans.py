"""Spans: whose time it was, when several operations ran at once.

At every moment of a step the time is divided equally among the operations that run. An operation that
holds others (a loop, a call) counts only while none of them runs. What is left is nobody's: XLA between
operations, and Python. So the parts add up to the step exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Span(NamedTuple):
    """An operation from `start` to `end`; `holds` if other operations run inside it."""

    name: str
    start: float
    end: float
    holds: bool = False


def divide(start: float, end: float, spans: Iterable[Span]) -> dict[str, float]:
    """Time of each operation between `start` and `end`; `""` is the time of none.

    >>> divide(0, 10, [Span("dot", 1, 5), Span("add", 3, 5), Span("while", 0, 6, holds=True)])
    {'while': 2.0, 'dot': 3.0, 'add': 1.0, '': 4.0}
    """
    cut = [s._replace(start=max(s.start, start), end=min(s.end, end)) for s in spans]
    edges = sorted(
        (time, kind, index)
        for index, span in enumerate(cut)
        if span.start < span.end
        for time, kind in ((span.start, 1), (span.end, 0))
    )
    out: dict[str, float] = {}
    running: dict[int, Span] = {}
    before, covered = start, 0.0
    for time, begins, index in edges:
        if running and time > before:
            _give(out, running, time - before)
            covered += time - before
        before = time
        if begins:
            running[index] = cut[index]
        else:
            del running[index]
    out[""] = end - start - covered
    return out


def _give(out: dict[str, float], running: dict[int, Span], duration: float) -> None:
    working = [s for s in running.values() if not s.holds] or list(running.values())
    for span in working:
        out[span.name] = out.get(span.name, 0.0) + duration / len(working)
