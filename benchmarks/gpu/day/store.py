"""Results on disk: one JSON file for each step, and for each part of a long one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Store:
    """A folder of results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def load(self, name: str) -> dict[str, Any]:
        """Empty if it is not there, or if it is no JSON."""
        try:
            found = json.loads(self.path(name).read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def save(self, name: str, result: dict[str, Any]) -> None:
        """In one step: a day that is killed leaves no half file."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(result, indent=1) + "\n")
        partial.replace(path)

    def forget(self, name: str) -> None:
        """A step and its parts."""
        self.path(name).unlink(missing_ok=True)
        for part in (self.folder / "parts").glob(f"{name}-*.json"):
            part.unlink()
