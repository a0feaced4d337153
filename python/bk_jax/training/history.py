"""The history of a run: points along the way, in a file beside the checkpoints."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bk_jax.privacy.durable import MALFORMED, read_regular, write_durably

NOTE = "loss, clipped and nonfinite are computed from the training data without noise: not private"
LIMIT = 2**27  # bytes: half a million points


@dataclasses.dataclass(frozen=True)
class Point:
    """What is known of a run after `step` steps.

    Attributes:
      step: steps on record in the ledger.
      epsilon: what they have spent, at the plan's delta.
      examples_per_second: the expected number; the actual one would not be public.
      metrics: what `evaluate` returned; post-processing if it never looks at the training data.
      loss: mean training loss over the steps since the last point. NOT PRIVATE.
      clipped: share of examples whose gradient was clipped in these steps. NOT PRIVATE.
      nonfinite: examples whose gradient was NaN or infinite and was left out. NOT PRIVATE.
    """

    step: int
    epsilon: float
    examples_per_second: float
    metrics: Mapping[str, float]
    loss: float
    clipped: float
    nonfinite: int

    def describe(self) -> str:
        """The point in one line, with what is not private in brackets.

        >>> Point(20, 0.834, 12345.6, {"accuracy": 0.91}, 0.532, 0.41, 0).describe()
        'epsilon 0.834, 12,346 examples/s, accuracy 0.91 [not private: loss 0.532, clipped 41%]'
        """
        public = [f"epsilon {self.epsilon:.3g}", f"{self.examples_per_second:,.0f} examples/s"]
        public += [f"{name} {value:.4g}" for name, value in self.metrics.items()]
        secret = [f"loss {self.loss:.4g}", f"clipped {self.clipped:.0%}"]
        if self.nonfinite:
            secret.append(f"NaN or infinite gradients {self.nonfinite}")
        return f"{', '.join(public)} [not private: {', '.join(secret)}]"


def save(path: Path, points: list[Point]) -> None:
    """Writes all points, or none."""
    fields = [_null_for_nan(dataclasses.asdict(point)) for point in points]
    write_durably(path, json.dumps({"note": NOTE, "points": fields}, indent=1, allow_nan=False))


def load(path: Path, steps: int) -> list[Point]:
    """The points up to `steps`, where the model that the run resumes from stands."""
    if not path.exists():
        return []
    try:
        points = _points(json.loads(read_regular(path, LIMIT).decode()))
    except MALFORMED as error:
        raise ValueError(
            f"{path} is not a history that fit wrote ({error}). The run itself does not need it: move "
            "it away to go on without the points so far."
        ) from error
    return [point for point in points if point.step <= steps]


def _points(content: dict[str, Any]) -> list[Point]:
    points = [Point(**_nan_for_null(fields)) for fields in content["points"]]
    for point in points:
        numbers = dataclasses.asdict(point)
        numbers |= numbers.pop("metrics")
        if not all(isinstance(number, int | float) for number in numbers.values()):
            raise ValueError(f"{numbers} are not all numbers")
    return points


def _null_for_nan(fields: dict[str, Any]) -> dict[str, Any]:
    """JSON has neither NaN nor infinity."""
    return {
        name: _null_for_nan(value) if isinstance(value, dict) else value if _finite(value) else None
        for name, value in fields.items()
    }


def _nan_for_null(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _nan_for_null(value)
        if isinstance(value, dict)
        else math.nan
        if value is None
        else value
        for name, value in fields.items()
    }


def _finite(value: Any) -> bool:
    return math.isfinite(value)
