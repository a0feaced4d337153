"""Document: the section of docs/gpu.md that the model makes, and its plot."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks.gpu.cycles import steps, tables, tables_of_steps
from bk_jax import palette

mpl.use("Agg")
from matplotlib import pyplot as plt

DOCS = Path(__file__).resolve().parents[3] / "docs"
BLOCK = re.compile(r"(<!-- cycles: (\w+) -->\n).*?(<!-- cycles: end -->)", flags=re.DOTALL)
TABLES = {
    "gpus": tables.sources, "caps": tables.caps, "occupancy": tables.occupancies,
    "shapes": tables.shapes, "loops": tables.main_loops, "noise": tables.noises,
    "ratios": tables_of_steps.ratios, "parts": lambda: tables_of_steps.parts("A100"),
    "causes": tables_of_steps.causes, "clusters": tables_of_steps.clusters,
    "convolutions": tables_of_steps.convolutions,
}  # fmt: skip


def updated(document: str) -> str:
    """A document with the tables between its markers made anew."""
    return BLOCK.sub(lambda m: f"{m[1]}\n{TABLES[m[2]]()}\n\n{m[3]}", document)


def write(path: Path) -> None:
    """The tables of a document, and the plot beside it."""
    path.write_text(updated(path.read_text()))
    draw(path.with_name("gpu_steps.png"))


def draw(path: Path) -> None:
    """Ratios of all cases, before and after, on A100 and H100."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.0), sharey=True, layout="constrained")
    for axis, gpu in zip(axes, ("A100", "H100"), strict=True):
        _panel(axis, gpu)
        axis.set_xlabel("step, private over plain: computed, not measured")
    handles, labels = axes[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(figure)


def _panel(axis: Any, gpu: str) -> None:
    for label, color, marker in zip(
        tables.LABELS, (palette.PALE, palette.ORANGE), "oD", strict=False
    ):
        ratios = [step.ratio for _, step in steps.all_steps(label, gpu)]
        axis.plot(ratios, range(len(ratios)), marker, color=color, label=f"ours, kernels {label}")
    for name, values, color, marker in (
        ("goal", [case.goal for case in steps.CASES], palette.INK, "|"),
        ("printed by others, on A100", [case.printed for case in steps.CASES], palette.BLUE, "x"),
    ):
        points = [(value, row) for row, value in enumerate(values) if value]
        axis.plot(*zip(*points, strict=True), marker, color=color, label=name)
    axis.axvline(1.0, color=palette.INK, linestyle="--", linewidth=0.8)
    axis.set_yticks(range(len(steps.CASES)), [case.label for case in steps.CASES])
    axis.set_title(gpu, loc="left")
    if not axis.yaxis_inverted():
        axis.invert_yaxis()
