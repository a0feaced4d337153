"""Pictures of the report, in the colors of the benchmark report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

from bk_jax import palette

mpl.use("Agg")
from matplotlib import pyplot as plt

OURS, OTHER, THIRD, PREDICTED = palette.BLUE, palette.INK, palette.PALE, palette.ORANGE
METHODS = {"none": OTHER, "auto": OURS, "ghost_clip": palette.GREEN, "opacus": palette.ORANGE}
WIDTH = 8.0  # inches
ROW = 0.28  # inches, of one bar
STAMP = "REHEARSAL: not a measurement"


def _figure(rows: int, title: str, *, is_rehearsal: bool) -> tuple[Any, Any]:
    drawn, axes = plt.subplots(figsize=(WIDTH, 1.6 + ROW * rows), layout="constrained")
    axes.set_title(title)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    if is_rehearsal:
        drawn.text(0.5, 0.5, STAMP, ha="center", va="center", rotation=20, fontsize=22, alpha=0.25)
    return drawn, axes


def _save(drawn: Any, path: Path) -> None:
    drawn.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(drawn)


def draw_ratios(ratios: list[dict[str, Any]], path: Path, *, is_rehearsal: bool) -> bool:
    """Our time over cublasLt's for as many flops, a bar for each kernel, type and shape."""
    rows = [row for row in ratios if row["over_cublasLt"]][::-1]
    if not rows:
        return False
    title = "time over that of cublasLt's product of as many flops"
    drawn, axes = _figure(len(rows), title, is_rehearsal=is_rehearsal)
    names = [f"{r['kernel']} {r['type']} {r['shape']}" for r in rows]
    axes.barh(names, [r["over_cublasLt"] for r in rows], color=OURS)
    axes.axvline(1.0, color=OTHER, linestyle="--")
    axes.set_xscale("log")
    axes.tick_params(axis="y", labelsize=7)
    _save(drawn, path)
    return True


def draw_predicted(
    ratios: list[dict[str, Any]], who: str, path: Path, *, is_rehearsal: bool
) -> bool:
    """Measured against predicted time; on the line they agree."""
    rows = [row for row in ratios if row.get("predicted")]
    if not rows:
        return False
    drawn, axes = _figure(12, f"measured against predicted ({who})", is_rehearsal=is_rehearsal)
    x, y = [r["predicted"] for r in rows], [r["microseconds"] for r in rows]
    ends = (min(x + y), max(x + y))
    axes.plot(ends, ends, color=OTHER, linestyle="--")
    axes.scatter(x, y, color=PREDICTED, s=14)
    axes.set(xscale="log", yscale="log", xlabel="predicted, microseconds", ylabel="measured")
    _save(drawn, path)
    return True


def draw_tables(rows: list[dict[str, Any]], path: Path, *, is_rehearsal: bool) -> bool:
    """Examples per second over those of the plain step, beside the paper's."""
    rows = [row for row in rows if row["slower"]][::-1]
    if not rows:
        return False
    title = "time of a step over the plain one's"
    drawn, axes = _figure(2 * len(rows), title, is_rehearsal=is_rehearsal)
    for at, row in enumerate(rows):
        color = METHODS.get(row["method"], THIRD)
        axes.barh(at, row["slower"], height=0.4, color=color)
        if row["paper_slower"]:
            axes.barh(at - 0.4, row["paper_slower"], height=0.3, color=THIRD, alpha=0.5)
    axes.set_yticks(range(len(rows)), [f"{r['model']} {r['method']} {r['dtype']}" for r in rows])
    axes.axvline(1.0, color=OTHER, linestyle="--")
    axes.set_xlabel("here (color), and as the paper printed it (gray)")
    axes.tick_params(axis="y", labelsize=7)
    _save(drawn, path)
    return True


def draw_probe(types: list[dict[str, Any]], path: Path, *, is_rehearsal: bool) -> bool:
    """The worst error that was seen as a share of what bounds count."""
    if not types:
        return False
    rows = types[::-1]
    title = "worst error of a chunk over what the bounds count"
    drawn, axes = _figure(len(rows), title, is_rehearsal=is_rehearsal)
    axes.barh([r["type"] for r in rows], [r["worst"] / r["counted"] for r in rows], color=OURS)
    axes.axvline(1.0, color=OTHER, linestyle="--")
    _save(drawn, path)
    return True
