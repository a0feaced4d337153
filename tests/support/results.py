"""Results of comparisons that nobody measured."""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.suite.comparisons import Comparison

TINY = Comparison("tiny", "time", "mlp", {"batch": 2, "width": 4, "depth": 1}, ("auto",))
PLAIN = (1.0, 0.98, 1.02, 100)


def made_up(name: str = "tiny", figure: str = "", **steps: tuple[float, ...]) -> dict[str, Any]:
    """A result; a step is (ratio, low, high, peak)."""
    one = dataclasses.replace(
        TINY, name=name, title="Tiny", figure=figure, x="batch" if figure else ""
    )
    keys = ("ratio", "low", "high", "peak")
    filled = {
        step: {**dict(zip(keys, numbers, strict=True)), "seconds": numbers[0], "turns": 3}
        for step, numbers in steps.items()
    }
    origin = {
        "machine": "A CPU, 2 cores, load 0.1, today\nXLA's gemm",
        "memory": "8 GiB",
        "flags": "none",
        "commit": "abc",
        "took": 90.0,
    }
    return {"comparison": one.as_dict(), "steps": filled, **origin}
