"""The live plot: one picture of the run so far, which a viewer never sees half written."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from bk_jax._extras import require
from bk_jax.palette import INK, LINE, PALE, PRIVATE
from bk_jax.training.history import Point

COLOUR = PRIVATE


def save_plot(path: Path, points: list[Point], target_epsilon: float) -> None:
    """Replaces the picture; a concurrent reader sees the old one or the new one, whole."""
    figure = draw(points, target_epsilon)
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    beside = path.with_name(path.name + ".new")
    beside.write_bytes(picture.getvalue())
    os.replace(beside, path)


def draw(points: list[Point], target_epsilon: float) -> Any:
    """Plots the training loss, any metrics, and the privacy spent against the steps."""
    figures = require("matplotlib.figure", "matplotlib")
    names = sorted({name for point in points for name in point.metrics})
    rows = 3 if names else 2
    figure = figures.Figure(figsize=(7.2, 1.4 + 1.8 * rows), dpi=120, layout="constrained")
    first, *middle, last = figure.subplots(rows, 1, sharex=True)
    steps = [point.step for point in points]
    first.plot(steps, [point.loss for point in points], color=PALE)
    first.set_ylabel("training loss\n(not private)")
    for axes in middle:
        for name in names:
            axes.plot(steps, [point.metrics.get(name) for point in points], label=name)
        axes.legend(frameon=False, labelcolor=INK)
    last.plot(steps, [point.epsilon for point in points], color=COLOUR)
    last.axhline(target_epsilon, color=INK, linewidth=1, linestyle="dashed")
    last.set_ylabel("privacy spent, ε")
    last.set_ylim(0, None)
    last.set_xlabel("step")
    for axes in (first, *middle, last):
        _quiet(axes)
    return figure


def _quiet(axes: Any) -> None:
    """Removes what carries no meaning."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, length=0)
    axes.margins(x=0)
