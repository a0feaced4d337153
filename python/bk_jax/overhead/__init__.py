"""The DP tax: what privacy costs a train step, measured and predicted; see `bk_jax.tax`.

Public names are imported on first use: `timing` works without JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bk_jax.overhead.calibration import calibrate
    from bk_jax.overhead.measure import tax
    from bk_jax.overhead.report import Row, StepMemory, Tax
    from bk_jax.overhead.timing import Timing

__all__ = ["Row", "StepMemory", "Tax", "Timing", "calibrate", "tax"]

_PLACES = {
    "Row": "report",
    "StepMemory": "report",
    "Tax": "report",
    "Timing": "timing",
    "calibrate": "calibration",
    "tax": "measure",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
