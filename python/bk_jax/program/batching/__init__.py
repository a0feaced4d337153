"""Batching in place: the program of one example becomes that of all, with the batch where it stands."""

from bk_jax.program.batching.interpreter import Batching, Fallback
from bk_jax.program.batching.value import ABSENT, Place, Value, at

__all__ = ["ABSENT", "Batching", "Fallback", "Place", "Value", "at"]
