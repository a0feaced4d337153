"""Where bk_jax loses, found in the results and not by whoever writes the report.

| a loss | counts when |
|---|---|
| slower than the plain step, or `auto` than any other | intervals do not touch, difference above A/A |
| more memory at its peak, a smaller largest batch | from 2 % |
| longer to trace and compile than the plain step | from twice as long |

Noise is compared with the plain step alone: the others add none. In figures only times count.
"""

from __future__ import annotations

from benchmarks.suite.readings import (
    Result,
    batches_within,
    label,
    noise_floor,
    over_plain,
    timed,
    title_of,
)

MEMORY = 0.02
COMPILING = 2.0


def _beyond_doubt(result: Result, ours: str, others: list[str]) -> list[str]:
    """Those of the others that are faster than ours."""
    steps = timed(result)
    if ours not in steps or "plain" not in steps:
        return []
    mine, margin = steps[ours], 1 + noise_floor(result)
    steps["plain"] = {"ratio": 1.0, "low": 1.0, "high": 1.0}
    return [
        f"{label(name)} ({steps[name]['ratio']:.2f} against {mine['ratio']:.2f})"
        for name in others
        if mine["low"] > steps[name]["high"] and mine["ratio"] > steps[name]["ratio"] * margin
    ]


def slower_than(result: Result, ours: str) -> list[str]:
    """Steps that are faster than ours without noise."""
    return _beyond_doubt(
        result, ours, [name for name in timed(result) if name not in (ours, "noise")]
    )


def larger_than(result: Result, ours: str) -> list[str]:
    """Steps that need less memory than ours, by XLA's account."""
    mine = over_plain(result, ours, "peak")
    if mine is None:
        return []
    found = []
    for name in result["steps"].keys() - {ours, "noise"}:
        other = over_plain(result, name, "peak")
        if other is not None and mine > other * (1 + MEMORY):
            found.append((other, f"{label(name)} ({other:.2f} against {mine:.2f})"))
    return [text for _, text in sorted(found)]


def smaller_than(result: Result, ours: str) -> list[str]:
    """Steps whose largest batch is larger than ours."""
    return [
        f"{label(name)} ({batch} against {batches[ours]} in {limit / 1e9:g} GB)"
        for limit, batches in batches_within(result).items()
        for name, batch in batches.items()
        if ours in batches and batch > batches[ours] * (1 + MEMORY)
    ]


def longer_than(result: Result, ours: str) -> list[str]:
    """The plain step, if ours takes far longer until it can run."""
    plain, mine = (
        step.get("trace", 0.0) + step.get("compile", 0.0)
        for step in (result["steps"]["plain"], result["steps"][ours])
    )
    text = f"{label('plain')} ({plain:.1f} s against {mine:.1f} s)"
    return [text] if mine > COMPILING * plain else []


def _parts(result: Result, ours: str) -> list[str]:
    """What is lost in one comparison."""
    found = {"slower than": slower_than(result, ours)}
    found["with noise slower than"] = _beyond_doubt(result, "noise", ["plain"])
    if not result["comparison"]["figure"]:
        found["more memory than"] = larger_than(result, ours)
        found["a smaller largest batch than"] = smaller_than(result, ours)
        found["longer to trace and compile than"] = longer_than(result, ours)
    return [f"{what} {', '.join(steps)}" for what, steps in found.items() if steps]


def losses(results: list[Result]) -> list[str]:
    """One line for each comparison with a loss."""
    lines = []
    for result in results:
        ours = "bk_jax" if "bk_jax" in result.get("steps", {}) else "auto"
        if "steps" in result and ours in result["steps"]:
            parts = _parts(result, ours)
            lines += [f"{title_of(result)}: {'; '.join(parts)}."] if parts else []
    return lines
