"""One picture of all models: time and peak memory of every step over those of the plain one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.suite.plots import STYLE, plt
from benchmarks.suite.readings import Result, over_plain, timed, title_of

WIDTH, ROW, EDGE = 9.0, 0.42, 1.5  # inches
TITLES = {"seconds": "time of a step / not private", "peak": "peak memory / not private"}
TICKS = (0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100)


def rows_of(results: list[Result]) -> list[Result]:
    """The comparisons that are drawn: whole train steps in our framework."""
    return [
        result
        for result in results
        if result["comparison"]["kind"] == "time"
        and not result["comparison"]["figure"]
        and "auto" in timed(result)
    ]


def value(result: Result, step: str, key: str) -> float | None:
    """The median of paired ratios for time; memory is exact."""
    if key == "peak":
        return over_plain(result, step, key)
    return timed(result).get(step, {}).get("ratio")


def draw(results: list[Result], path: Path) -> None:
    """Writes the picture: a line for each model, a mark for each step."""
    rows = rows_of(results)[::-1]
    size = (WIDTH, EDGE + ROW * len(rows))
    drawn, panels = plt.subplots(1, 2, figsize=size, layout="constrained", sharey=True)
    for axes, key in zip(panels, TITLES, strict=True):
        _panel(axes, rows, key)
    panels[0].set_yticks(range(len(rows)), [title_of(result) for result in rows], fontsize=7)
    handles, labels = panels[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=7)
    drawn.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(drawn)


def _panel(axes: Any, rows: list[Result], key: str) -> None:
    names = [name for name in STYLE if name != "plain" and any(name in r["steps"] for r in rows)]
    shown = []
    for name in sorted(names, key=lambda name: name == "auto"):  # ours lies on top
        points = [(value(result, name, key), y) for y, result in enumerate(rows)]
        points = [(x, y) for x, y in points if x is not None]
        color, line, _ = STYLE[name]
        filled = color if line == "-" else "white"
        style = {"s": 45 if name == "auto" else 22, "edgecolors": color, "facecolors": filled}
        axes.scatter(*zip(*points, strict=True), label=name, zorder=3, **style)
        shown += [x for x, _ in points]
    axes.axvline(1, color="black", linestyle="--", linewidth=1)
    axes.set(xscale="log", xlim=(min(shown, default=1) / 1.2, max(shown, default=1) * 1.2))
    low, high = axes.get_xlim()
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.grid(axis="both", color="0.9")
    axes.set_title(TITLES[key], fontsize=9)
