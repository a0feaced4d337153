"""Markdown tables of results."""

from __future__ import annotations

from benchmarks.paper.complexity.markdown import markdown
from benchmarks.suite.readings import (
    Result,
    Step,
    batches_within,
    examples_per_second,
    label,
    over_plain,
    timed,
    x_of,
)

STEP_HEADER = [
    "step", "s/step", "examples/s", "time / plain", "interval", "temp, MB", "peak, MB",
    "peak / plain", "resident, MB", "trace, s", "compile, s", "turns",
]  # fmt: skip


def megabytes(number: float | None) -> str:
    return "" if number is None else f"{number / 1e6:.0f}"


def ratio(number: float | None) -> str:
    return "" if number is None else f"{number:.2f}"


def seconds(number: float) -> str:
    return f"{number:.2g}" if number < 1 else f"{number:.2f}"


def time_cells(result: Result, name: str, step: Step) -> list[str]:
    if "ratio" not in step:
        return [step.get("skipped", ""), "", "", ""]  # of a step that was not run
    interval = f"{step['low']:.3f} .. {step['high']:.3f}"
    speed = f"{examples_per_second(result, name):.3g}"
    return [seconds(step["seconds"]), speed, f"{step['ratio']:.3f}", interval]


def step_table(result: Result) -> str:
    """One row for each step of a comparison; the first is the plain step against itself."""
    rows = []
    for name, step in result["steps"].items():
        memory = [megabytes(step.get("temporary")), megabytes(step.get("peak"))]
        memory += [ratio(over_plain(result, name, "peak")), megabytes(step.get("resident"))]
        compiling = [f"{step[key]:.1f}" if key in step else "" for key in ("trace", "compile")]
        turns = str(step.get("turns", ""))
        text = label(name) + (" (A/A)" if name == "plain" else "")
        text += f" = {label(step['same_as'])}" if "same_as" in step else ""
        rows.append([text, *time_cells(result, name, step), *memory, *compiling, turns])
    used = [i for i in range(len(STEP_HEADER)) if any(row[i] for row in rows)]
    return markdown([STEP_HEADER[i] for i in used], [[row[i] for i in used] for row in rows])


def figure_table(rows: list[Result]) -> str:
    """A figure in numbers: for each step its ratio of time, or its peak in MB where nothing ran."""
    is_timed = any(timed(result) for result in rows)
    names = list(dict.fromkeys(name for result in rows for name in result["steps"]))
    header = [rows[0]["comparison"]["x"], *map(label, names)]
    return markdown(header, [[str(x_of(r)), *_figure_cells(r, names, is_timed)] for r in rows])


def _figure_cells(result: Result, names: list[str], is_timed: bool) -> list[str]:
    cells = []
    for name in names:
        step = result["steps"].get(name, {})
        if not is_timed:
            cells.append(megabytes(step.get("peak")))
        elif name == "plain" and "seconds" in step:
            cells.append(f"{1e3 * step['seconds']:.3g} ms")
        else:
            cells.append(f"{step['ratio']:.2f}" if "ratio" in step else step.get("skipped", ""))
    return cells


def largest_table(results: list[Result]) -> str:
    """Largest batches, one row for each model and limit."""
    names = list(dict.fromkeys(name for result in results for name in result["steps"]))
    header = ["model", "limit", *map(label, names)]
    rows = []
    for result in results:
        comparison = result["comparison"]
        title = comparison["title"] or comparison["model"]
        for limit, batches in batches_within(result).items():
            cells = [str(batches.get(name, "")) for name in names]
            rows.append([title, f"{limit / 1e9:g} GB", *cells])
    return markdown(header, rows)
