"""The recorder: turns what the steps saw into points, and shows, plots and saves them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bk_jax.privacy.plans import Plan
from bk_jax.training import history
from bk_jax.training.history import Point
from bk_jax.training.plot import save_plot
from bk_jax.training.progress import Progress
from bk_jax.training.steps import Seen

PLOT_SECONDS = 2.0  # at least this long between plots; drawing one takes a tenth of a second
Evaluate = Callable[[Any], Mapping[str, Any]]


class Recorder:
    """Collects what the steps saw until a point is due.

    Args:
      plan: computes what has been spent.
      folder: the folder of `history.json` and `progress.png`.
      points: the points of the run so far.
      evaluate: computes metrics from the parameters, or None.
      progress: where points are shown.
      plot_target: the epsilon that the plot marks; None for no plot.
    """

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        points: list[Point],
        evaluate: Evaluate | None,
        progress: Progress,
        plot_target: float | None,
    ):
        self.points = points
        self._plan, self._folder, self._evaluate = plan, folder, evaluate
        self._progress, self._plot_target = progress, plot_target
        self._seen: list[Seen] = []
        self._since = time.perf_counter()
        self._drawn = -np.inf

    def step(self, number: int, seen: Seen) -> None:
        """Notes that a step has been taken, without waiting for its results."""
        self._seen.append(seen)
        self._progress.step(number)

    def report(self, steps: int, params: Any) -> None:
        """Makes a point from the steps since the last one, if there are any."""
        if not self._seen:
            return
        point = self._point(steps, params)
        self._seen = []
        self.points.append(point)
        history.save(self._folder / "history.json", self.points)
        self._progress.point(point)
        if time.perf_counter() > self._drawn + PLOT_SECONDS:
            self.plot()
        self._since = time.perf_counter()

    def plot(self) -> None:
        """Plots the points so far, if a plot is wanted."""
        if self._plot_target is not None and self.points:
            save_plot(self._folder / "progress.png", self.points, self._plot_target)
            self._drawn = time.perf_counter()

    def _point(self, steps: int, params: Any) -> Point:
        sizes, losses, clipped, nonfinite = np.asarray(self._seen, np.float64).T
        seconds = time.perf_counter() - self._since
        weights = sizes / max(sizes.sum(), 1)
        return Point(
            step=steps,
            epsilon=self._plan.epsilon(steps),
            examples_per_second=self._plan.batch_size * len(sizes) / seconds,
            metrics=_metrics(self._evaluate, params),
            loss=float(weights @ losses),
            clipped=float(weights @ clipped),
            nonfinite=int(nonfinite.sum()),
        )


def _metrics(evaluate: Evaluate | None, params: Any) -> dict[str, float]:
    found = {} if evaluate is None else evaluate(params)
    try:
        return {str(name): float(value) for name, value in found.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise TypeError(
            "evaluate must return a mapping from names to numbers, such as {'accuracy': 0.9}; got "
            f"{found!r}."
        ) from error
