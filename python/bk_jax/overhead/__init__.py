"""The DP tax: what privacy costs a train step, measured and predicted; see `bk_jax.tax`."""

from bk_jax.overhead.measure import tax
from bk_jax.overhead.report import Row, Tax
from bk_jax.overhead.steps import StepMemory
from bk_jax.overhead.timing import Timing

__all__ = ["Row", "StepMemory", "Tax", "Timing", "tax"]
