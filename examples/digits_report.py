"""What `digits.py` shows: its setting, progress, two tables and the plot."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import matplotlib.axes
import matplotlib.figure
import matplotlib.ticker
import numpy as np
import rich.box
import rich.console
import rich.progress
import rich.status
import rich.table

from bk_jax.palette import INK, LINE, PALE, PLAIN, PRIVATE

if TYPE_CHECKING:
    from digits import Task

Histories = dict[str, list["Point"]]
COLOURS = {"private": PRIVATE, "not private": PLAIN}

console = rich.console.Console()


class Point(NamedTuple):
    """What is known of a run after `step` steps."""

    step: int
    accuracy: float
    loss: float
    epsilon: float


def print_setting(args: argparse.Namespace, task: Task, params: Any, calls: dict[str, int]) -> None:
    """What is about to be done, in numbers."""
    table = rich.table.Table.grid(padding=(0, 2))
    sizes = [leaf.size for leaf in jax.tree.leaves(params)]
    counts = ", ".join(f"{name} x {count}" for name, count in calls.items())
    plan, held_out = task.plan, len(task.held_out.labels)
    target = f"epsilon {args.epsilon:g} at delta {args.delta:g}"
    rows = {
        "data": f"{plan.num_examples} images to learn from, {held_out} held out",
        "network": f"{len(params)} dense layers, {sum(sizes):,} parameters",
        "batches": f"Poisson, {args.batch_size} expected, padded to {plan.max_batch_size} rows",
        "noise": f"multiplier {plan.noise_multiplier:.3f} for {plan.steps} steps, {target}",
        "custom calls": counts or "none: the pure-JAX twins run, see bk_jax.diagnose()",
    }
    for name, value in rows.items():
        table.add_row(f"[bold]{name}", value)
    console.print(table, highlight=False)


def waiting(what: str) -> rich.status.Status:
    """Shows that something goes on that has no steps to count."""
    return console.status(what)


def watch(name: str, steps: int, points: Iterable[Point]) -> list[Point]:
    """Shows a run while it goes, and returns its points."""
    seen: list[Point] = []
    bar = rich.progress.Progress(
        rich.progress.TextColumn("{task.description:<12}"),
        rich.progress.BarColumn(bar_width=24),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TextColumn("{task.fields[known]}"),
        console=console,
    )
    with bar:
        task = bar.add_task(name, total=steps, known="")
        for point in points:
            seen.append(point)
            bar.update(task, completed=point.step, known=_known(point))
    return seen


def _known(point: Point) -> str:
    spent = f"epsilon {point.epsilon:.2f}" if np.isfinite(point.epsilon) else "not private"
    return f"held-out loss {point.loss:.3f}, {spent}"


def print_results(histories: Histories, delta: float) -> None:
    """Accuracy on the held-out images, and what it cost in privacy."""
    table = _table("training", "held-out accuracy", "epsilon", "delta")
    for name, points in histories.items():
        last = points[-1]
        private = np.isfinite(last.epsilon)
        spent = (f"{last.epsilon:.3f}", f"{delta:g}") if private else ("∞", "")
        table.add_row(name, f"{last.accuracy:.1%}", *spent)
    console.print(table)


def print_times(times: dict[str, float]) -> None:
    """Time of one step, and how many ordinary steps that is."""
    table = _table("step", "median time", "ratio")
    plain = times["not private"]
    for name, milliseconds in times.items():
        table.add_row(name, f"{milliseconds:.2f} ms", f"{milliseconds / plain:.2f}")
    console.print(table)


def _table(first: str, *others: str) -> rich.table.Table:
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, title_justify="left")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def save_plot(path: Path, histories: Histories, epsilon: float, delta: float) -> None:
    """Accuracy over steps of both runs, and below it the privacy spent."""
    figure = matplotlib.figure.Figure(figsize=(7.2, 5.4), dpi=160, layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for name, points in histories.items():
        values = [100 * point.accuracy for point in points]
        _line(top, points, values, COLOURS[name], f"{name}: {values[-1]:.1f}%")
    private = histories["private"]
    spent = [point.epsilon for point in private]
    _line(bottom, private, spent, COLOURS["private"], f"private: ε = {spent[-1]:.2f}")
    target = f"target: ε = {epsilon:g} at δ = {delta:g}"
    bottom.axhline(epsilon, color=INK, linewidth=1, linestyle=(0, (4, 3)), label=target)
    top.set_title("Handwritten digits, learned with and without privacy", loc="left", color=INK)
    top.set_ylabel("held-out accuracy")
    top.set_ylim(0, 102)
    top.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(decimals=0))
    bottom.set_ylabel("privacy spent, ε")
    bottom.set_ylim(0, 1.15 * epsilon)
    bottom.set_xlabel("step")
    for axes in (top, bottom):
        _quiet(axes)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    console.print(f"plot: {path}")


def _line(
    axes: matplotlib.axes.Axes, points: list[Point], values: list[float], colour: str, label: str
) -> None:
    """A line that ends in a dot: where the run ended."""
    steps = [point.step for point in points]
    axes.plot(
        steps, values, color=colour, label=label, linewidth=2.2, solid_capstyle="round",
        marker="o", markevery=[-1], markersize=6, clip_on=False,
    )  # fmt: skip


def _quiet(axes: matplotlib.axes.Axes) -> None:
    """Leaves what carries meaning."""
    axes.legend(loc="lower right", frameon=False, labelcolor=INK)
    axes.margins(x=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(PALE)
    axes.grid(axis="y", color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, length=0)
    axes.yaxis.label.set_color(INK)
    axes.xaxis.label.set_color(INK)
