"""Where bk_jax loses, found in the results and not by whoever writes the report.

| a loss | counts when |
|---|---|
| slower than the plain step, or `auto` than any other | intervals do not touch, difference above A/A |
| more memory at its peak, a smaller largest batch | from 2 % |
| longer to trace and compile than the plain step | from twice as long |
| longer to trace than the plain step | from 1.5 times as long, and half a second |
| slower than the plain step on a GPU, as predicted | from 2 %; never measured |

Noise is compared with the plain step alone: the others add none. In figures only times count, or only
memory where nothing is timed. Layers that are computed again in the backward pass (remat) are a model of
their own among the memory comparisons.
"""

from __future__ import annotations

from benchmarks.gpu.cycles import architectures, kernels, steps
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
TRACING, TRACING_SECONDS = 1.5, 0.5
PREDICTED = 0.02


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


def longer_to_trace(result: Result, ours: str) -> list[str]:
    """The plain step, if Python works far longer on ours: XLA's part hides it in the sum."""
    plain, mine = (result["steps"][name].get("trace", 0.0) for name in ("plain", ours))
    text = f"{label('plain')} ({plain:.1f} s against {mine:.1f} s)"
    return [text] if mine > max(TRACING * plain, plain + TRACING_SECONDS) else []


def predicted() -> list[str]:
    """Steps that the model of our kernels expects to be slower on a GPU; none has run on one."""
    lines = []
    for name in (gpu.name for gpu in architectures.ARCHITECTURES):
        found = [
            f"{case.label} ({step.ratio:.2f})"
            for case, step in steps.all_steps(kernels.labels()[-1], name)
            if step.ratio > 1 + PREDICTED
        ]
        text = "predicted from the compiled kernels, never measured: slower than not private (1.00)"
        lines += [f"{name}, bfloat16, {text} on {', '.join(found)}."] if found else []
    return lines


def _parts(result: Result, ours: str) -> list[str]:
    """What is lost in one comparison."""
    found = {"slower than": slower_than(result, ours)}
    found["with noise slower than"] = _beyond_doubt(result, "noise", ["plain"])
    is_figure, kind = bool(result["comparison"]["figure"]), result["comparison"]["kind"]
    if not is_figure or kind == "memory":
        found["more memory than"] = larger_than(result, ours)
    if not is_figure:
        found["a smaller largest batch than"] = smaller_than(result, ours)
        found["longer to trace and compile than"] = longer_than(result, ours)
        found["longer to trace than"] = longer_to_trace(result, ours)
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
