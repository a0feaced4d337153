"""How cost grows with the size that a figure varies: powers of it, least squares in logarithms.

A small size pays for what does not grow, so the last two sizes are fitted by themselves as well.
"""

from __future__ import annotations

import itertools

import numpy as np

from benchmarks.paper.complexity.markdown import markdown
from benchmarks.suite.readings import Result, Step, label, x_of

Points = list[tuple[float, float]]
HEADER = ["step", "time", "last two", "peak memory", "last two", "trace, compile", "last two"]


def exponent(points: Points) -> float | None:
    """The power that fits best; None for less than two points.

    >>> exponent([(1, 3), (2, 12), (4, 48)])
    2.0
    """
    if len(points) < 2:
        return None
    x, y = np.log(np.asarray(points, float)).T
    slope = float(np.polyfit(x, y, 1)[0])
    return round(slope, 2) + 0.0  # no "-0.00"


def build_seconds(step: Step) -> float | None:
    """To trace and to compile; None if it was compiled for its bytes alone."""
    return step["trace"] + step["compile"] if {"trace", "compile"} <= step.keys() else None


QUANTITIES = (lambda step: step.get("seconds"), lambda step: step.get("peak"), build_seconds)


def exponents(rows: list[Result], name: str) -> list[float | None]:
    """Of a step: time, memory and build, each over all sizes and over the last two."""
    steps = [(x_of(result), result["steps"].get(name, {})) for result in rows]
    found = []
    for quantity in QUANTITIES:
        values = [(x, quantity(step)) for x, step in steps]
        points = [(float(x), y) for x, y in values if y]
        found.append([exponent(points), exponent(points[-2:])])
    return list(itertools.chain(*found))


def growth_table(rows: list[Result]) -> str:
    """One row for each step of a figure; columns that nobody fills are left out."""
    names = dict.fromkeys(name for result in rows for name in result["steps"])
    cells = {name: exponents(rows, name) for name in names}
    used = [
        i for i in range(2 * len(QUANTITIES)) if any(row[i] is not None for row in cells.values())
    ]
    texts = [[label(name), *(_text(row[i]) for i in used)] for name, row in cells.items()]
    return markdown([HEADER[0], *(HEADER[i + 1] for i in used)], texts)


def _text(power: float | None) -> str:
    return "" if power is None else f"{power:.2f}"
