"""What a study shows: a progress bar, a table and a plot."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.axes
import matplotlib.figure
import rich.console
import rich.progress

from bk_jax.palette import INK, OTHER, PLAIN, PRIVATE

COLOURS = {"private": PRIVATE, "not private": PLAIN, "private, by vmap(grad)": OTHER}

console = rich.console.Console()


class Point(NamedTuple):
    """What is known of a run after `step` steps."""

    step: int
    metrics: dict[str, float]
    epsilon: float


class Outcome(NamedTuple):
    """A finished training, and what one of its steps costs: ratios to the plain step."""

    name: str
    points: list[Point]
    time: float
    memory: float


def save_points(path: Path, points: Mapping[str, list[Point]]) -> None:
    """Keeps what trainings reported, so that their steps can be timed again."""
    path.write_text(json.dumps(points))


def load_points(path: Path) -> dict[str, list[Point]]:
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there: run the study without --time-again first.")
    kept = json.loads(path.read_text())
    return {name: [Point(*point) for point in points] for name, points in kept.items()}


@dataclasses.dataclass
class Reporter:
    """Collects points of a run, and shows how far it is."""

    evaluate: Callable[[Any], Mapping[str, Any]]
    epsilon: Callable[[int], float]
    steps: int
    every: int
    show: Callable[[int, str], None]
    points: list[Point] = dataclasses.field(default_factory=list)

    def __call__(self, step: int, params: Any) -> None:
        """Step `step` is done; evaluates now and then."""
        text = ""
        if step % self.every == 0 or step == self.steps:
            metrics = {name: float(value) for name, value in self.evaluate(params).items()}
            self.points.append(Point(step, metrics, self.epsilon(step)))
            text = described(metrics)
        self.show(step, text)


@contextlib.contextmanager
def watch(
    name: str, steps: int, evaluate: Any, epsilon: Callable[[int], float], every: int
) -> Iterator[Reporter]:
    """A progress bar around a run."""
    bar = rich.progress.Progress(
        rich.progress.TextColumn("{task.description:<12}"),
        rich.progress.BarColumn(bar_width=24),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TextColumn("{task.fields[known]}"),
        console=console,
    )
    with bar:
        task = bar.add_task(name, total=steps, known="")

        def show(step: int, text: str) -> None:
            bar.update(task, completed=step, **({"known": text} if text else {}))

        yield Reporter(evaluate, epsilon, steps, every, show)


def described(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())


def table(outcomes: list[Outcome]) -> list[tuple[str, ...]]:
    """Header and rows; where a run was shorter, the private one's numbers after as many steps too."""
    names = list(outcomes[0].points[-1].metrics)
    longest = max(outcome.points[-1].step for outcome in outcomes)
    rows = [("training", "steps", *names, "epsilon", "time", "memory")]
    for outcome in outcomes:
        rows.append(row(outcome.name, outcome.points[-1], outcome))
        last = outcome.points[-1].step
        if last < longest:
            private = next(o for o in outcomes if o.name == "private")
            same = next((p for p in private.points if p.step == last), None)
            if same is not None:
                rows.append(row(f"private, after {last} steps", same, private))
    return rows


def row(name: str, point: Point, outcome: Outcome) -> tuple[str, ...]:
    epsilon = f"{point.epsilon:.2f}" if math.isfinite(point.epsilon) else "∞"
    values = [f"{value:.4g}" for value in point.metrics.values()]
    return (name, str(point.step), *values, epsilon, f"{outcome.time:.2f}", f"{outcome.memory:.2f}")


def print_table(outcomes: list[Outcome], delta: float) -> None:
    """In Markdown, to be copied into a README."""
    header, *rows = table(outcomes)
    print(f"\n| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for cells in rows:
        print(f"| {' | '.join(cells)} |")
    print(
        f"\nepsilon at delta {delta:g}; time and temporary memory of a step over the step that is "
        "not private."
    )


def save_plot(path: Path, title: str, outcomes: list[Outcome]) -> None:
    """The first metric over steps, and what a step costs."""
    figure = matplotlib.figure.Figure(figsize=(8.4, 3.6), dpi=130, layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(3, 1, 1))
    metric = next(iter(outcomes[0].points[-1].metrics))
    for outcome in outcomes:
        steps = [point.step for point in outcome.points]
        values = [point.metrics[metric] for point in outcome.points]
        spent = outcome.points[-1].epsilon
        label = outcome.name + (f", ε = {spent:.2f}" if math.isfinite(spent) else "")
        style = "--" if "vmap" in outcome.name else "-"
        left.plot(steps, values, style, color=COLOURS[outcome.name], label=label, linewidth=2)
    left.set_title(title, loc="left", color=INK, fontsize=10)
    left.set_xlabel("step", color=INK)
    left.set_ylabel(f"held-out {metric}", color=INK)
    left.legend(frameon=False, labelcolor=INK, fontsize=8)
    for axes, what in ((middle, "time"), (right, "memory")):
        bars(axes, f"{what} of a step", {o.name: getattr(o, what) for o in outcomes})
    quiet([left, middle, right])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    print(f"plot: {path}")


def bars(axes: matplotlib.axes.Axes, title: str, ratios: dict[str, float]) -> None:
    shown = axes.bar(range(len(ratios)), list(ratios.values()), color=[COLOURS[n] for n in ratios])
    axes.bar_label(shown, fmt="%.2f", fontsize=8, color=INK)
    axes.set_title(title, fontsize=9, color=INK)
    axes.set_xticks([])
    axes.set_yticks([])


def quiet(all_axes: list[matplotlib.axes.Axes]) -> None:
    for axes in all_axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=INK, length=0, labelsize=8)
