"""Batching in place: the program of one example becomes that of all, with the batch where it stands."""

from bk_jax.program.batching.interpreter import Batching, Fallback
from bk_jax.program.batching.value import ABSENT, EXAMPLES_FIRST, Place, Value, at

__all__ = ["ABSENT", "EXAMPLES_FIRST", "Batching", "Fallback", "Place", "Value", "at"]
