"""Figures of results: one picture for each size that varies, time (or memory) against it.

Every size has a band, in which marks stand side by side: lines of steps that are equal, or nearly, would
hide each other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import LogLocator, NullLocator

from benchmarks.suite.readings import LABELS, Result, examples_per_second, heading, timed, x_of
from bk_jax.palette import AMBER, BLUE, FAINT, GREEN, INK, LINE, ORANGE, PURPLE, SKY

# Colour, line and marker of a step; ours are blue, dotted ones have hollow marks.
STYLE = {
    "plain": (INK, "--", "o"),
    "auto": (BLUE, "-", "o"),
    "noise": (BLUE, ":", "o"),
    "tf_privacy": (FAINT, "-", "v"),
    "opacus": (ORANGE, "-", "s"),
    "fast_grad_clip": (AMBER, "-", "^"),
    "ghost_clip": (GREEN, "-", "D"),
    "mix_ghost_clip": (GREEN, ":", "D"),
    "bk": (PURPLE, "-", "P"),
    "bk_mix_ghost_clip": (PURPLE, ":", "P"),
    "bk_mix_opt": (SKY, "-", "X"),
}
OTHER = (None, "-", ".")  # of a step that is not among them
SIZE = (8.5, 3.8)  # inches
SPREAD = 8  # numbers that are further apart are drawn in powers
WHAT = {"throughput": "throughput", "memory": "peak memory"}
AXES = {"length": "T (tokens)", "batch": "B (examples)", "size": "image (pixels)"}


def kinds(rows: list[Result]) -> list[str]:
    """What is drawn of a figure: throughput only if something ran."""
    return ["throughput", "memory"] if any(timed(result) for result in rows) else ["memory"]


def names(figure: str, rows: list[Result]) -> list[str]:
    """The files of a figure."""
    return [f"{figure}-{kind}.png" for kind in kinds(rows)]


def draw(figure: str, rows: list[Result], folder: Path) -> None:
    """Writes the files of a figure."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, name in zip(kinds(rows), names(figure, rows), strict=True):
        _plot(rows, kind, folder / name)


def peak(result: Result, step: str) -> float | None:
    """MB, by XLA's account: known for steps that did not run too."""
    found = result["steps"].get(step, {}).get("peak")
    return found / 1e6 if found is not None else None


VALUES: dict[str, Any] = {"throughput": examples_per_second, "memory": peak}


def curves(rows: list[Result], kind: str) -> dict[tuple[str, ...], list[tuple[int, float]]]:
    """Points by the steps that they belong to: the same program is one curve with several names."""
    found: dict[tuple[tuple[int, float], ...], list[str]] = {}
    for name in dict.fromkeys(name for result in rows for name in result["steps"]):
        values = [(x_of(result), VALUES[kind](result, name)) for result in rows]
        points = tuple((x, y) for x, y in values if y is not None)
        if points:
            found.setdefault(points, []).append(name)
    return {tuple(names): list(points) for points, names in found.items()}


def inside(step: str) -> str | None:
    """The colour within a step's marks: dotted ones are hollow."""
    color, line, _ = STYLE.get(step, OTHER)
    return "white" if line == ":" else color


def lanes(names: list[str]) -> dict[str, float]:
    """A place for each step within its band, from 0.4 down: no two marks hide each other."""
    step = 0.8 / max(len(names) - 1, 1)
    return {name: 0.4 - step * number for number, name in enumerate(names)}


def _plot(rows: list[Result], kind: str, path: Path) -> None:
    drawn, axes = plt.subplots(figsize=SIZE, layout="constrained")
    found = curves(rows, kind)
    bands = {x_of(result): place for place, result in enumerate(rows)}
    aside = lanes([steps[0] for steps in found if "plain" not in steps])
    for steps, points in found.items():
        heights = {bands[x]: y for x, y in points}
        if "plain" in steps:
            _levels(axes, steps, heights)
        else:
            _marks(axes, steps, heights, aside[steps[0]])
    _finish(axes, rows, kind)
    _scale_y(axes, [y for points in found.values() for _, y in points])
    drawn.legend(loc="outside right upper", fontsize=9)
    drawn.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(drawn)


def _legend(steps: tuple[str, ...]) -> str:
    return "\n= ".join(LABELS.get(name, name) for name in steps)


def _levels(axes: Any, steps: tuple[str, ...], heights: dict[int, float]) -> None:
    """The plain step: a line through every band, which marks are above or below."""
    ends = [place - 0.48 for place in heights], [place + 0.48 for place in heights]
    color, line, _ = STYLE["plain"]
    axes.hlines(
        list(heights.values()), *ends, color=color, linestyle=line, zorder=2, label=_legend(steps)
    )


def _marks(axes: Any, steps: tuple[str, ...], heights: dict[int, float], aside: float) -> None:
    step = "auto" if "auto" in steps else steps[0]
    color, _, marker = STYLE.get(step, OTHER)
    axes.plot(
        [place - aside for place in heights], list(heights.values()), marker, color=color,
        markerfacecolor=inside(step), zorder=3, label=_legend(steps),
    )  # fmt: skip


def _finish(axes: Any, rows: list[Result], kind: str) -> None:
    x = rows[0]["comparison"]["x"]
    what = "examples/s" if kind == "throughput" else "peak memory, MB"
    axes.set(xlabel=AXES.get(x, x), ylabel=what, title=heading(rows[0], WHAT[kind]))
    axes.set(xlim=(-0.5, len(rows) - 0.5))
    axes.set_xticks(range(len(rows)), [str(x_of(result)) for result in rows])
    axes.tick_params(axis="x", length=0)
    for place in range(1, len(rows)):
        axes.axvline(place - 0.5, color=LINE, linewidth=1.2)
    axes.grid(axis="y", color=LINE)


def _scale_y(axes: Any, values: list[float]) -> None:
    """From zero, or in powers if the numbers are far apart."""
    if max(values) < SPREAD * min(values):
        axes.set_ylim(0, 1.05 * max(values))
        return
    axes.set_yscale("log")
    axes.set_ylim(min(values) / 1.3, 1.3 * max(values))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
