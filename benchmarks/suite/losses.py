"""Where `auto` loses, found in the results and not by whoever writes the report.

A loss: it is slower than the plain step or than another step, or needs more memory. Times count when the
two intervals do not touch and the difference is above what an A/A comparison shows; memory from 2 %.
"""

from __future__ import annotations

from readings import Result, label, noise_floor, over_plain, timed, title_of

MEMORY = 0.02


def slower_than(result: Result, ours: str) -> list[str]:
    """Steps that are faster than ours, beyond doubt."""
    steps = timed(result)
    if ours not in steps or "plain" not in steps:
        return []
    mine, margin = steps[ours], 1 + noise_floor(result)
    others = {name: step for name, step in steps.items() if name not in (ours, "noise")}
    others["plain"] = {"ratio": 1.0, "low": 1.0, "high": 1.0}
    return [
        f"{label(name)} ({step['ratio']:.2f} against {mine['ratio']:.2f})"
        for name, step in others.items()
        if mine["low"] > step["high"] and mine["ratio"] > step["ratio"] * margin
    ]


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


def losses(results: list[Result]) -> list[str]:
    """One line for each comparison with a loss."""
    lines = []
    for result in results:
        ours = "bk_jax" if "bk_jax" in result.get("steps", {}) else "auto"
        if "steps" not in result or ours not in result["steps"]:
            continue
        time = slower_than(result, ours)
        memory = [] if result["comparison"]["figure"] else larger_than(result, ours)
        parts = [f"slower than {', '.join(time)}"] if time else []
        parts += [f"more memory than {', '.join(memory)}"] if memory else []
        if parts:
            lines.append(f"{title_of(result)}: {'; '.join(parts)}.")
    return lines
