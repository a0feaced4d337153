"""The picture: time and memory of the steps above, what each parameter adds below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bk_jax._extras import require
from bk_jax.overhead.report import shorten

if TYPE_CHECKING:
    from bk_jax.overhead.report import Tax

COLOUR, PALE, INK = "#1f6f8b", "#9a9a9a", "#333333"
SHOWN = 24  # parameters; the others are added up


def draw(report: Tax) -> Any:
    """Ratios with their intervals, and bars of measured beside marks of predicted overhead."""
    figures = require("matplotlib.figure", "matplotlib")
    rows = shorten(report.rows, SHOWN)
    heights = [1.5, 0.5 + 0.22 * len(rows)]
    figure = figures.Figure(figsize=(7.2, 1.2 + sum(heights)), dpi=110, layout="constrained")
    steps, parameters = figure.subplots(2, 1, height_ratios=heights)
    _draw_steps(steps, report)
    _draw_rows(parameters, rows)
    figure.suptitle(
        f"DP tax: {report.ratio:.2f} of the plain step's time, predicted "
        f"{report.predicted_ratio:.2f}  ({report.batch_size} examples, method {report.method})",
        color=INK, fontsize=10,
    )  # fmt: skip
    return figure


def _draw_steps(axes: Any, report: Tax) -> None:
    timings = {"plain again (A/A)": report.plain_against_itself}
    if report.noise_multiplier:
        timings["time without noise"] = report.time_without_noise
    timings["time"] = report.time
    memory = {"temporary memory": report.temporary_ratio, "total memory": report.total_ratio}
    known = {name: ratio for name, ratio in memory.items() if ratio is not None}
    for place, timing in enumerate(timings.values()):
        axes.plot([timing.low, timing.high], [place, place], color=COLOUR, linewidth=2)
        axes.plot([timing.ratio], [place], "o", color=COLOUR)
    for place, ratio in enumerate(known.values(), start=len(timings)):
        axes.plot([ratio], [place], "s", color=COLOUR)
    axes.axvline(1, color=INK, linewidth=1)
    axes.set_yticks(range(len(timings) + len(known)), [*timings, *known])
    axes.set_xlabel("ratio to the plain step", color=INK)
    _quiet(axes)


def _draw_rows(axes: Any, rows: Any) -> None:
    places = range(len(rows))
    measured = [row.measured for row in rows]
    if None not in measured:
        widths = [100 * value for value in measured]
        axes.barh(places, widths, color=COLOUR, height=0.6, label="measured")
    predicted = [(i, 100 * row.predicted) for i, row in enumerate(rows) if row.kind != "outside"]
    axes.plot(
        [value for _, value in predicted], [i for i, _ in predicted], "D", markersize=4,
        markerfacecolor="white", markeredgecolor=INK, linestyle="none", label="predicted",
    )  # fmt: skip
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_yticks(places, [_label(row) for row in rows])
    axes.set_xlabel("added by privacy, percent of the plain step", color=INK)
    axes.legend(frameon=False, labelcolor=INK, loc="best")
    _quiet(axes)


def _label(row: Any) -> str:
    name = row.name or "(the parameter)"
    return f"{name}  [{row.route}]" if row.route else name


def _quiet(axes: Any) -> None:
    """Leaves what carries meaning."""
    axes.invert_yaxis()
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", color="#e8e8e8", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, length=0, labelsize=8)
