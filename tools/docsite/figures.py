"""The pictures of docs/pictures.md: drawn from formulas, stored results and the planner, in one palette.

`PYTHONPATH=python:tools .venv/bin/python -m docsite.figures` writes docs/figures/*.svg anew.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from bk_jax import privacy
from bk_jax.palette import AMBER, BLUE, FAINT, GREEN, INK, LINE, ORANGE, PALE, ROUTES, SKY
from bk_jax.planning.cost import LayerCost
from docsite.links import ROOT

FOLDER = ROOT / "docs" / "figures"
TEXT: Any = {
    "font.size": 12,
    "axes.edgecolor": FAINT,
    "svg.hashsalt": "bk_jax",
    "svg.fonttype": "path",
}
Axes = Any


def quiet(axes: Axes, grid: str = "both") -> None:
    """Leaves out what carries no meaning."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)


def box(axes: Axes, x: float, y: float, label: str, colour: str, width: float = 2.1) -> None:
    """A box with text in it, its centre at a place."""
    patch = matplotlib.patches.FancyBboxPatch(
        (x - width / 2, y - 0.5), width, 1.0, boxstyle="round,pad=0.02,rounding_size=0.12",
        facecolor=colour + "22", edgecolor=colour, linewidth=1.8,
    )  # fmt: skip
    axes.add_patch(patch)
    axes.text(x, y, label, ha="center", va="center", color=INK)


def arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], label: str = ""
) -> None:
    """An arrow, with a word above it."""
    style = {"arrowstyle": "-|>", "color": FAINT, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=end, xytext=start, arrowprops=style)
    if label:
        x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
        axes.text(x, y + 0.12, label, ha="center", va="bottom", color=FAINT, fontsize=11)


def flow() -> Any:
    """One gradient, from the loss to what is released."""
    figure, axes = plt.subplots(figsize=(10, 5.2), layout="constrained")
    axes.set(xlim=(0, 13.6), ylim=(0, 6.6))
    axes.axis("off")
    top, low = 5.4, 1.2
    box(axes, 1.3, top, "loss of one\nexample", PALE)
    box(axes, 4.5, top, "taps where\nweights are used", SKY, 2.6)
    box(axes, 8.3, top, "one back-propagation,\nall examples", BLUE, 3.2)
    box(axes, 11.9, top, "the book:\na and g", AMBER)
    arrow(axes, (2.4, top), (3.15, top))
    arrow(axes, (5.85, top), (6.65, top))
    arrow(axes, (9.95, top), (10.8, top))
    box(axes, 11.9, 3.3, "norms, with\nan upper bound", GREEN, 2.4)
    arrow(axes, (11.9, 4.85), (11.9, 3.85))
    box(axes, 8.3, 3.3, "factors\nC = min(R / norm, 1)", GREEN, 3.2)
    arrow(axes, (10.65, 3.3), (9.95, 3.3))
    box(axes, 8.3, low, "clipped sum, one\nproduct per layer", BLUE, 3.2)
    arrow(axes, (8.3, 2.75), (8.3, low + 0.55))
    axes.plot([12.98, 13.25, 13.25], [top, top, low], color=FAINT, linewidth=1.6)
    arrow(axes, (13.25, low), (9.98, low), "a and g once more")
    box(axes, 4.5, low, "+ noise, once", ORANGE, 2.4)
    arrow(axes, (6.65, low), (5.75, low))
    box(axes, 1.3, low, "/ public\nconstant", PALE)
    arrow(axes, (3.25, low), (2.4, low))
    axes.text(1.3, 2.0, "released", ha="center", color=ORANGE)
    axes.text(4.5, 2.0, "private from here on", ha="center", color=ORANGE, fontsize=11)
    return figure


def kept() -> Any:
    """What ghost, store and fused keep for a layer, as areas of numbers per example."""
    t, d, p = 100, 768, 768
    figure, panels = plt.subplots(1, 3, figsize=(10, 4), layout="constrained", sharey=True)
    what = {
        "ghost": ([("a", t, d), ("g", t, p)], "norm from two Gram matrices, T x T"),
        "fused": ([("a", t, d), ("g", t, p)], "gradient formed tile by tile, not kept"),
        "store": ([("gradient", d, p)], "a and g are freed; the gradient is kept"),
    }
    for axes, (route, (arrays, note)) in zip(panels, what.items(), strict=True):
        bottom = 0.0
        for name, rows, columns in arrays:
            size = rows * columns / 1000
            shade = ROUTES[route] + ("ff" if bottom == 0 else "aa")
            axes.bar([0], [size], bottom=bottom, color=shade, width=0.5, edgecolor="white")
            axes.text(
                0.32,
                bottom + size / 2,
                f"{name}: {rows} x {columns}",
                va="center",
                fontsize=11,
                color=INK,
            )
            bottom += size
        axes.set(title=route, xlim=(-0.5, 1.3), xticks=[], xlabel=note)
        axes.xaxis.label.set_size(10)
        quiet(axes, "y")
    panels[0].set_ylabel("thousand numbers per example")
    figure.suptitle(f"a dense layer with T = {t}, d = p = {d}", fontsize=12)
    return figure


def cost_against_t() -> Any:
    """Flops that each route adds to a dense layer, over those of its plain gradient."""
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    lengths = np.unique(np.logspace(0, 3.6, 60).astype(int))
    for axes, (d, p) in zip(panels, ((768, 768), (64, 256)), strict=True):
        for route in ("ghost", "fused", "store"):
            costs = [LayerCost(1, int(t), d, p, 4, 4) for t in lengths]
            extra = [c.extra_flops(route) / (6 * c.t * d * p) for c in costs]
            axes.plot(lengths, extra, color=ROUTES[route], linewidth=2.4, label=route)
        axes.set(
            xscale="log", yscale="log", xlabel="T, positions per example", title=f"d = {d}, p = {p}"
        )
        quiet(axes)
    panels[0].set_ylabel("flops added / plain layer")
    panels[0].legend(frameon=False)
    return figure


def spent() -> Any:
    """Epsilon over the steps of plans with the same budget."""
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    for batch, colour in ((100, BLUE), (500, GREEN), (2000, ORANGE)):
        plan = privacy.plan(
            target_epsilon=3, delta=1e-5, num_examples=10_000, batch_size=batch, epochs=10
        )
        steps = np.unique(np.linspace(1, plan.steps, 12).astype(int))
        epsilons = [plan.epsilon(int(s)) for s in steps]
        label = f"batch {batch}, noise multiplier {plan.noise_multiplier:.2f}"
        axes.plot(steps / plan.steps, epsilons, "o-", color=colour, label=label)
    axes.set(xlabel="share of the run", ylabel="epsilon at delta 1e-5", ylim=(0, 3.2))
    axes.legend(frameon=False)
    quiet(axes)
    return figure


FIGURES: dict[str, Callable[[], Any]] = {
    "flow": flow,
    "kept": kept,
    "cost_against_t": cost_against_t,
    "spent": spent,
}


def main(folder: Path = FOLDER) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with plt.rc_context(TEXT):
        for name, draw in FIGURES.items():
            figure = draw()
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
            plt.close(figure)


if __name__ == "__main__":
    main()
