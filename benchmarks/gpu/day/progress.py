"""A bar on a terminal, one line for each step everywhere."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from rich import progress as rich_progress

from benchmarks.gpu.day.runner import Step


class Progress:
    """Shows which step runs, and what came out of those before."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self.bar = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            rich_progress.MofNCompleteColumn(),
            rich_progress.TimeElapsedColumn(),
        )
        self.task = self.bar.add_task(steps[0].title, total=len(steps))

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bar.stop()

    def show(self, step: Step, result: dict[str, Any]) -> None:
        """A step is done."""
        how = "kept" if result.get("kept") else f"{result['seconds']:.0f} s"
        line = f"{step.name:<12} {result['status']:<7} {how:>6}  {result['line']}"
        self.bar.console.print(line, highlight=False, soft_wrap=True, markup=False)
        self.bar.advance(self.task)
        at = min(int(self.bar.tasks[0].completed), len(self.steps) - 1)
        self.bar.update(self.task, description=self.steps[at].title)
