"""A bar on a terminal, one line for each piece of work everywhere."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich import progress as rich_progress


class Progress:
    """Shows how many pieces are done, which one runs, and how long the rest may take."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.bar = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            rich_progress.MofNCompleteColumn(),
            rich_progress.TimeElapsedColumn(),
            rich_progress.TimeRemainingColumn(),
        )
        self.task = self.bar.add_task(names[0], total=len(names))

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

    def advance(self, line: str) -> None:
        """One is done; says what came out of it."""
        self.bar.console.print(line, highlight=False, soft_wrap=True, markup=False)
        self.bar.advance(self.task)
        done = int(self.bar.tasks[0].completed)
        self.bar.update(self.task, description=self.names[min(done, len(self.names) - 1)])
