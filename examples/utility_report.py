"""Runs of `utility.py`: their file, their table and their curves."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import NamedTuple

import matplotlib.figure
from study_report import INK, Point, quiet

from bk_jax.palette import OTHER, PLAIN, PRIVATE, PURPLE

COLOURS = {None: PLAIN, 8.0: PRIVATE, 3.0: OTHER}
OTHERS = PURPLE


class Run(NamedTuple):
    """A training: its budget (None: not private) and seed, its costs, and what it reported."""

    epsilon: float | None
    seed: int
    batch_size: int
    cpu_seconds: float
    wall_seconds: float
    points: list[Point]


def save_runs(path: Path, runs: list[Run]) -> None:
    """One line of the file is one run; rewritten as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(rounded(run)) for run in runs]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def rounded(run: Run) -> dict[str, object]:
    """Infinity is no JSON: an epsilon that is not spent is null."""
    points = [
        [p.step, {n: round(x, 5) for n, x in p.metrics.items()}, finite(p.epsilon)]
        for p in run.points
    ]
    return run._asdict() | {"points": points}


def finite(epsilon: float) -> float | None:
    return round(epsilon, 4) if math.isfinite(epsilon) else None


def load_runs(path: Path) -> list[Run]:
    """The runs of the file; none if there is no file."""
    if not path.exists():
        return []
    kept = json.loads(path.read_text())
    return [Run(**run | {"points": [point(*p) for p in run["points"]]}) for run in kept]


def point(step: int, metrics: dict[str, float], epsilon: float | None) -> Point:
    return Point(step, metrics, math.inf if epsilon is None else epsilon)


def budgets(runs: list[Run]) -> list[float | None]:
    """Not private first, then from much to little."""
    return sorted({run.epsilon for run in runs}, key=lambda e: -math.inf if e is None else -e)


def of_budget(runs: list[Run], epsilon: float | None) -> list[Run]:
    return sorted((run for run in runs if run.epsilon == epsilon), key=lambda run: run.seed)


def metric_of(runs: list[Run]) -> str:
    """What is compared: an accuracy, or the first number if there is none."""
    names = list(runs[0].points[-1].metrics)
    return next((name for name in names if "accuracy" in name), names[0])


def label(epsilon: float | None) -> str:
    return "not private" if epsilon is None else f"epsilon {epsilon:g}"


def table(runs: list[Run]) -> list[tuple[str, ...]]:
    """Header and rows: the last values of every seed, their mean, and the time of a run."""
    metric = metric_of(runs)
    rows = [("training", f"{metric}, mean", "of each seed", "less than not private", "CPU time")]
    means: dict[float | None, float] = {}
    for epsilon in budgets(runs):
        group = of_budget(runs, epsilon)
        last = [run.points[-1].metrics[metric] for run in group]
        means[epsilon] = statistics.mean(last)
        lost = f"{means[None] - means[epsilon]:.3f}" if None in means and epsilon else ""
        seconds = statistics.mean(run.cpu_seconds for run in group)
        each = ", ".join(f"{value:.3f}" for value in last)
        rows.append((label(epsilon), f"{means[epsilon]:.3f}", each, lost, f"{seconds:.0f} s"))
    return rows


def print_table(runs: list[Run]) -> None:
    """In Markdown, to be copied into a README."""
    header, *rows = table(runs)
    print(f"\n| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for cells in rows:
        print(f"| {' | '.join(cells)} |")


def save_plot(path: Path, title: str, runs: list[Run], num_examples: int) -> None:
    """The first metric over passes; a line is the mean of the seeds, its band holds all of them."""
    figure = matplotlib.figure.Figure(figsize=(6.4, 3.6), dpi=130, layout="constrained")
    axes = figure.subplots()
    metric = metric_of(runs)
    for epsilon in budgets(runs):
        group = of_budget(runs, epsilon)
        steps = [point.step for point in group[0].points]
        passes = [step * group[0].batch_size / num_examples for step in steps]
        values = [[point.metrics[metric] for point in run.points] for run in group]
        colour = COLOURS.get(epsilon, OTHERS)
        mean = [statistics.mean(at) for at in zip(*values, strict=True)]
        axes.plot(passes, mean, color=colour, linewidth=2, label=label(epsilon))
        low, high = ([f(at) for at in zip(*values, strict=True)] for f in (min, max))
        axes.fill_between(passes, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set_title(title, loc="left", color=INK, fontsize=10)
    axes.set_xlabel("passes over the data", color=INK)
    axes.set_ylabel(f"held-out {metric}", color=INK)
    axes.legend(frameon=False, labelcolor=INK, fontsize=8)
    quiet([axes])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    print(f"plot: {path}")
