"""One picture of all models: time and peak memory of every step over those of the plain one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.suite.plots import STYLE, inside, lanes, plt
from benchmarks.suite.readings import LABELS, NAMES, Result, over_plain, subject, timed, unsaid
from bk_jax.palette import LINE

WIDTH, ROW, EDGE = 11.0, 1.35, 1.6  # inches
MOST = 8  # rows that are read at a glance; with more, whole models alone
TALLEST = 18.0  # inches of all rows
TITLES = {"seconds": "time of a step / not private", "peak": "peak memory / not private"}
TICKS = (0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100)


def rows_of(results: list[Result]) -> list[Result]:
    """The comparisons that are drawn: train steps in our framework.

    Where there are more than `MOST`, those of whole models; models that were cut to a few blocks have
    their tables in the report.
    """
    steps = [
        result
        for result in results
        if result["comparison"]["kind"] == "time"
        and not result["comparison"]["figure"]
        and "auto" in timed(result)
    ]
    whole = [result for result in steps if "depth" not in result["comparison"]["sizes"]]
    return whole if len(steps) > MOST and whole else steps


def value(result: Result, step: str, key: str) -> float | None:
    """The median of paired ratios for time; memory is exact."""
    if key == "peak":
        return over_plain(result, step, key)
    return timed(result).get(step, {}).get("ratio")


def draw(results: list[Result], path: Path) -> None:
    """Writes the picture: a line for each model, a mark for each step."""
    rows = rows_of(results)[::-1]
    size = (WIDTH, EDGE + min(ROW * len(rows), TALLEST))
    drawn, panels = plt.subplots(1, 2, figsize=size, layout="constrained", sharey=True)
    for axes, key in zip(panels, TITLES, strict=True):
        _panel(axes, rows, key)
    panels[0].set_yticks(range(len(rows)), [label_of(result) for result in rows], fontsize=10)
    handles, labels = panels[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=10, frameon=False)
    drawn.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(drawn)


def label_of(result: Result) -> str:
    """The title over the sizes that it does not say already: how deep a cut model is, it does."""
    sizes = {NAMES[key]: value for key, value in unsaid(result).items() if key in NAMES}
    title = subject(result).replace(", ", "\n", 1)
    return "\n".join([title, ", ".join(f"{name}={value}" for name, value in sizes.items())])


def _panel(axes: Any, rows: list[Result], key: str) -> None:
    names = [name for name in STYLE if name != "plain" and any(name in r["steps"] for r in rows)]
    shown, height = [], lanes(names)
    for name in names:
        points = [(value(result, name, key), y + height[name]) for y, result in enumerate(rows)]
        points = [(x, y) for x, y in points if x is not None]
        color, _, marker = STYLE[name]
        size = 60 if name == "auto" else 36
        style = {"s": size, "edgecolors": color, "facecolors": inside(name)}
        axes.scatter(
            *zip(*points, strict=True),
            label=LABELS.get(name, name),
            zorder=3,
            marker=marker,
            **style,
        )
        shown += [x for x, _ in points]
    for y in range(1, len(rows)):
        axes.axhline(y - 0.5, color=LINE, linewidth=1.2)
    axes.axvline(1, color="black", linestyle="--", linewidth=1)
    axes.set(xscale="log", xlim=(min(shown, default=1) / 1.2, max(shown, default=1) * 1.2))
    low, high = axes.get_xlim()
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.grid(axis="x", color=LINE)
    axes.set(ylim=(-0.5, len(rows) - 0.5))
    axes.tick_params(labelsize=10)
    axes.set_title(TITLES[key], fontsize=12)
