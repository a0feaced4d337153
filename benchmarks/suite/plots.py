"""Figures of results: one picture for each size that varies, time (or memory) against it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from readings import Result, examples_per_second, timed, x_of

# Color, line and marker of a step; ours are red.
STYLE = {
    "plain": ("black", "--", "o"),
    "auto": ("tab:red", "-", "o"),
    "noise": ("tab:red", ":", "o"),
    "tf_privacy": ("tab:gray", "-", "."),
    "opacus": ("tab:blue", "-", "."),
    "fast_grad_clip": ("tab:orange", "-", "."),
    "ghost_clip": ("tab:green", "-", "."),
    "mix_ghost_clip": ("tab:green", ":", "."),
    "bk": ("tab:purple", "-", "."),
    "bk_mix_ghost_clip": ("tab:purple", ":", "."),
    "bk_mix_opt": ("tab:pink", "-", "."),
}
SIZE = (5.5, 3.6)
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


def _plot(rows: list[Result], kind: str, path: Path) -> None:
    drawn, axes = plt.subplots(figsize=SIZE, layout="constrained")
    for name in dict.fromkeys(name for result in rows for name in result["steps"]):
        points = [(x_of(result), VALUES[kind](result, name)) for result in rows]
        points = [(x, y) for x, y in points if y is not None]
        if points:
            color, line, marker = STYLE.get(name, (None, "-", "."))
            label = "not private" if name == "plain" else name
            axes.plot(*zip(*points, strict=True), line, marker=marker, color=color, label=label)
    x = rows[0]["comparison"]["x"]
    axes.set(
        xlabel=AXES.get(x, x), ylabel="examples/s" if kind == "throughput" else "peak memory, MB"
    )
    axes.set(xscale="log", yscale="log", title=rows[0]["comparison"]["title"])
    axes.set_xticks([x_of(result) for result in rows], [str(x_of(result)) for result in rows])
    axes.minorticks_off()
    axes.legend(fontsize=7)
    drawn.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(drawn)
