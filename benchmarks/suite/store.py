"""Results on disk, one JSON file for each comparison, so that an interrupted run can go on.

A result is done when it belongs to the comparison as it is asked for now and has no error. One that
was stopped is done too, since it would be stopped again: give the comparison more `minutes`, or delete
the file where memory had ended.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.suite.comparisons import Comparison, from_dict

Result = dict[str, Any]


class Store:
    """A folder of results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def load(self, name: str) -> Result | None:
        path = self.path(name)
        return json.loads(path.read_text()) if path.exists() else None

    def save(self, comparison: Comparison, result: Result) -> None:
        """In one step: a run that is killed leaves no half file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"comparison": comparison.as_dict(), **result}, indent=1) + "\n"
        partial = self.path(comparison.name).with_suffix(".partial")
        partial.write_text(text)
        partial.replace(self.path(comparison.name))

    def done(self, comparison: Comparison) -> bool:
        result = self.load(comparison.name)
        return (
            result is not None
            and ("error" not in result or "stopped" in result)
            and from_dict(result["comparison"]) == comparison
        )

    def results(self, wanted: list[Comparison]) -> list[Result]:
        """What is there of the wanted ones, in their order."""
        found = (self.load(one.name) for one in wanted)
        return [result for result in found if result is not None]
