"""A function of one example, batched in place and by `jax.vmap`: results must be equal.

    assert same(lambda x, w: x @ w, Given((1, 3), Place(0)), Given((3, 2))) == Result([Place(0)])

Elements are small integers, so products and sums are exact in whatever order they are made. Arrays of
all examples are put into place by NumPy, not by the code under test.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from bk_jax._compat import struct_like
from bk_jax.program.batching import ABSENT, Batching, Place, Value

B = 3
EXTRA = Place(0, extra=True)


@dataclasses.dataclass(frozen=True)
class Given:
    """An argument: its shape in one example, where all examples have theirs, and its elements."""

    shape: tuple[int, ...]
    place: Place = ABSENT
    dtype: Any = np.float32
    low: int = -4
    high: int = 5

    def array(self, seed: int, size: int) -> np.ndarray:
        """Examples in front, if there are any."""
        shape = self.shape if self.place == ABSENT else (size, *self.shape)
        rng = np.random.default_rng(seed)
        return rng.integers(self.low, self.high, shape).astype(self.dtype)


class Result(NamedTuple):
    """Where the results have their examples, and the primitives that had no rule."""

    places: list[Place]
    fallbacks: tuple[str, ...] = ()


def placed(array: np.ndarray, place: Place) -> np.ndarray:
    """An array with examples in front as one with the examples at a place."""
    if place == ABSENT:
        return array
    assert place.axis is not None
    if not place.extra:
        assert array.shape[1 + place.axis] == 1
        array = np.squeeze(array, 1 + place.axis)
    return np.moveaxis(array, 0, place.axis)


def in_front(array: np.ndarray, place: Place, size: int) -> np.ndarray:
    """The way back; what all examples share is repeated."""
    array = np.asarray(array)
    if place == ABSENT:
        return np.broadcast_to(array, (size, *array.shape))
    assert place.axis is not None
    array = np.moveaxis(array, place.axis, 0)
    return array if place.extra else np.expand_dims(array, 1 + place.axis)


def type_of_one(value: Value) -> jax.ShapeDtypeStruct:
    """The type of one example's part, inside of a `shard_map` too."""
    return struct_like(jax.ShapeDtypeStruct(value.shape, value.array.dtype), value.array)


def batched(
    function: Callable[..., Any], places: Sequence[Place], size: int
) -> tuple[Callable[..., list[Any]], Batching, list[Place]]:
    """A function of arrays of all examples, its interpreter, and its results' places once it ran."""
    batching = Batching(size)
    found: list[Place] = []

    def run(*arrays: Any) -> list[Any]:
        values = [Value(array, place) for array, place in zip(arrays, places, strict=True)]
        types = [type_of_one(value) for value in values]
        outs = batching.evaluate(jax.make_jaxpr(function)(*types), values)
        found[:] = [out.place for out in outs]
        return [out.array for out in outs]

    return run, batching, found


def same(function: Callable[..., Any], *given: Given, size: int = B) -> Result:
    """Asserts that both ways give the same; returns how batching in place did it."""
    arrays = [argument.array(seed, size) for seed, argument in enumerate(given)]
    places = [argument.place for argument in given]
    run, batching, found = batched(function, places, size)
    axes = [None if place == ABSENT else 0 for place in places]
    in_place = [placed(array, place) for array, place in zip(arrays, places, strict=True)]

    def both(in_place: list[Any], arrays: list[Any]) -> tuple[list[Any], list[Any]]:
        return run(*in_place), jax.tree.leaves(jax.vmap(function, axes)(*arrays))

    got, expected = jax.jit(both)(in_place, arrays)
    for out, place, truth in zip(got, found, expected, strict=True):
        np.testing.assert_array_equal(in_front(out, place, size), truth, strict=True)
    return Result(found, tuple(fallback.primitive for fallback in batching.fallbacks))
