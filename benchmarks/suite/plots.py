"""Figures of results: one picture for each size that varies, time (or memory) against it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import LogLocator, NullLocator

from benchmarks.suite.readings import Result, examples_per_second, timed, x_of
from bk_jax.palette import AMBER, BLUE, FAINT, GREEN, INK, ORANGE, PURPLE, SKY

# Colour, line and marker of a step; ours are blue.
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
SIZE = (7.5, 3.4)  # inches
SPREAD = 8  # numbers that are further apart are drawn in powers
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


def _plot(rows: list[Result], kind: str, path: Path) -> None:
    drawn, axes = plt.subplots(figsize=SIZE, layout="constrained")
    drawn_curves = curves(rows, kind)
    for steps, points in drawn_curves.items():
        color, line, marker = STYLE.get("auto" if "auto" in steps else steps[0], (None, "-", "."))
        label = "\n= ".join("not private" if name == "plain" else name for name in steps)
        axes.plot(*zip(*points, strict=True), line, marker=marker, color=color, label=label)
    x = rows[0]["comparison"]["x"]
    what = "examples/s" if kind == "throughput" else "peak memory, MB"
    axes.set(xlabel=AXES.get(x, x), ylabel=what, title=rows[0]["comparison"]["title"])
    axes.set_xscale("log")
    axes.set_xticks([x_of(result) for result in rows], [str(x_of(result)) for result in rows])
    axes.minorticks_off()
    _scale_y(axes, [y for points in drawn_curves.values() for _, y in points])
    axes.grid(color="0.9")
    drawn.legend(loc="outside right upper", fontsize=9)
    drawn.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(drawn)


def _scale_y(axes: Any, values: list[float]) -> None:
    """From zero, or in powers if the numbers are far apart."""
    if max(values) < SPREAD * min(values):
        axes.set_ylim(0, 1.05 * max(values))
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
