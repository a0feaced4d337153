"""Document: the tables that the model makes on two pages of docs, and its plot."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl

from benchmarks.gpu.cycles import steps, tables, tables_of_steps
from bk_jax import palette

mpl.use("Agg")
from matplotlib import pyplot as plt

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = ("gpu_kernels.md", "gpu_model.md")
BLOCK = re.compile(r"(<!-- cycles: (\w+) -->\n).*?(<!-- cycles: end -->)", flags=re.DOTALL)
TABLES = {
    "gpus": tables.sources, "caps": tables.caps, "occupancy": tables.occupancies,
    "shapes": tables.shapes, "loops": tables.main_loops, "noise": tables.noises,
    "ratios": tables_of_steps.ratios, "parts": lambda: tables_of_steps.parts("A100"),
    "causes": tables_of_steps.causes, "clusters": tables_of_steps.clusters,
    "convolutions": tables_of_steps.convolutions, "networks": tables_of_steps.networks,
}  # fmt: skip


class Mark(NamedTuple):
    """A number of every case, and its look."""

    name: str
    marker: str
    color: str
    values: list[float | None]


def updated(document: str) -> str:
    """A document with the tables between its markers made anew."""
    return BLOCK.sub(lambda m: f"{m[1]}\n{TABLES[m[2]]()}\n\n{m[3]}", document)


def write(folder: Path) -> None:
    """The tables of all pages in a folder, and the plot beside them."""
    for page in PAGES:
        (folder / page).write_text(updated((folder / page).read_text()))
    draw(folder / "gpu_steps.png")


def draw(path: Path) -> None:
    """Ratios of all cases, before and after, on A100 and H100: every mark has a lane of its case."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 6.4), sharey=True, layout="constrained")
    for axis, gpu in zip(axes, ("A100", "H100"), strict=True):
        _panel(axis, gpu)
    handles, labels = axes[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(figure)


def marks(gpu: str) -> list[Mark]:
    """What is drawn on a GPU, by lanes from the top; one number for each case, or none."""
    before, after = (
        [step.ratio for _, step in steps.all_steps(label, gpu)] for label in tables.LABELS
    )
    goals, printed = ([getattr(case, name) for case in steps.CASES] for name in ("goal", "printed"))
    return [
        Mark("goal", "|", palette.INK, goals),
        Mark("bk_jax, kernels as they are", "D", palette.ORANGE, after),
        Mark("printed by others, who measured on A100", "x", palette.BLUE, printed),
        Mark("bk_jax, kernels before they had one main loop", "o", palette.PALE, before),
    ]


def _panel(axis: Any, gpu: str) -> None:
    drawn = marks(gpu)
    for lane, mark in enumerate(drawn):
        aside = 0.6 * lane / (len(drawn) - 1) - 0.3
        points = [(value, row + aside) for row, value in enumerate(mark.values) if value]
        thick = {"markersize": 9, "markeredgewidth": 2} if mark.marker == "|" else {}
        axis.plot(
            *zip(*points, strict=True), mark.marker, color=mark.color, label=mark.name, **thick
        )
    for row in range(1, len(steps.CASES)):
        axis.axhline(row - 0.5, color=palette.LINE)
    axis.axvline(1.0, color=palette.INK, linestyle="--", linewidth=0.8)
    axis.set_yticks(range(len(steps.CASES)), [case.label for case in steps.CASES])
    axis.set(ylim=(len(steps.CASES) - 0.5, -0.5))
    axis.set_xlabel("private over plain; bk_jax: computed, not measured")
    axis.set_title(gpu, loc="left")
