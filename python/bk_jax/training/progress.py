"""Progress of a run: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from typing import Any

from bk_jax._extras import require
from bk_jax.training.history import Point


class Progress:
    """Shows how far a run has come and its newest point, until the context exits.

    Args:
      total: steps of the run.
      done: steps taken earlier.
      console: a `rich.console.Console`; default: standard output.
    """

    def __init__(self, total: int, done: int, console: Any = None):
        rich = require("rich.progress", "rich")
        self._console = console or require("rich.console", "rich").Console()
        self._total = total
        text = "{task.fields[known]}"
        columns = [
            rich.BarColumn(bar_width=24),
            rich.MofNCompleteColumn(),
            rich.TimeRemainingColumn(),
        ]
        columns.append(rich.TextColumn(text, markup=False))
        shown = self._console.is_terminal
        self._bar = rich.Progress(*columns, console=self._console, disable=not shown)
        self._task = self._bar.add_task("", total=total, completed=done, known="")

    def step(self, number: int) -> None:
        """A step has been taken; `number` steps are done."""
        self._bar.update(self._task, completed=number)

    def point(self, point: Point) -> None:
        """Shows a new point."""
        self._bar.update(self._task, known=point.describe())
        if not self._console.is_terminal:
            self.line(f"step {point.step}/{self._total}: {point.describe()}")

    def line(self, text: str) -> None:
        """Prints a line that stays on the screen."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
