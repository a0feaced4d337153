"""Where the examples are: the values of one example's program, for all examples at once.

The loss sees a batch of one, so most arrays of its program have an axis of size 1 that is the batch.
A value of all examples is one of three kinds:

| kind | array | place |
|---|---|---|
| absent | as for one example: it is the same for all | `ABSENT` |
| grown | an axis of size 1 has grown to B where it stands | `Place(k)` |
| extra | an axis of B is inserted, the others are as for one example | `Place(k, extra=True)` |

`at` turns one kind into another. An axis that is grown and an extra one beside an axis of size 1 are
the same array in memory.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

Shape = tuple[int, ...]


class Place(NamedTuple):
    """The axis of the array that holds the examples, if any does.

    Attributes:
      axis: its number in the array.
      extra: whether one example's array lacks it; otherwise it has size 1 there.
    """

    axis: int | None
    extra: bool = False


ABSENT = Place(None)
EXAMPLES_FIRST = Place(0, extra=True)


@dataclasses.dataclass(frozen=True)
class Value:
    """An array of all examples, or of each of them alike."""

    array: Any
    place: Place = ABSENT

    @property
    def is_batched(self) -> bool:
        """Whether examples differ in it."""
        return self.place.axis is not None

    @property
    def grown(self) -> int | None:
        """The axis that has grown, if there is one."""
        return None if self.place.extra else self.place.axis

    @property
    def shape(self) -> Shape:
        """The shape of one example's array."""
        shape, (axis, extra) = tuple(self.array.shape), self.place
        if axis is None:
            return shape
        return (*shape[:axis], *(() if extra else (1,)), *shape[axis + 1 :])

    @property
    def before(self) -> int:
        """How many elements of one example's array are in front of the axis, by its own axes."""
        assert self.place.axis is not None
        return math.prod(self.shape[: self.place.axis])


def at(value: Value, place: Place, size: int) -> Value:
    """The same value with its examples at a place; `size` is their number."""
    if value.place == place:
        return value
    if not value.is_batched:
        return Value(_repeated(value.array, place, size), place)
    return Value(_moved(value, place), place)


def settled(value: Value) -> Value:
    """An extra axis beside an axis of size 1 as that axis, grown: the same memory, one axis less."""
    axis, extra = value.place
    if axis is None or not extra:
        return value
    shape = value.shape
    for own in (axis, axis - 1):
        if 0 <= own < len(shape) and shape[own] == 1:
            return Value(value.array.reshape(grown_shape(shape, own, value)), Place(own))
    return value


def grown_shape(shape: Sequence[int], axis: int, value: Value) -> Shape:
    """One example's shape with an axis of size 1 as large as the batch of `value`."""
    assert value.place.axis is not None
    return replaced(shape, axis, value.array.shape[value.place.axis])


def replaced(numbers: Sequence[Any], position: int, number: Any) -> tuple[Any, ...]:
    """A tuple with one of its elements replaced."""
    return (*numbers[:position], number, *numbers[position + 1 :])


def inserted(numbers: Sequence[Any], position: int, number: Any) -> tuple[Any, ...]:
    """A tuple with one element more."""
    return (*numbers[:position], number, *numbers[position:])


def _repeated(array: Any, place: Place, size: int) -> Any:
    """An array that all examples share, once for each of them."""
    axis, extra = place
    assert axis is not None
    shape = tuple(array.shape)
    if not extra:
        return jax.lax.broadcast_in_dim(array, replaced(shape, axis, size), range(len(shape)))
    others = [i for i in range(len(shape) + 1) if i != axis]
    return jax.lax.broadcast_in_dim(array, inserted(shape, axis, size), others)


def _moved(value: Value, place: Place) -> Any:
    """The array with the axis of examples elsewhere; a transpose only if elements change order."""
    (axis, extra), array = value.place, value.array
    assert axis is not None
    assert place.axis is not None
    if not extra:
        array = array.reshape(inserted(array.shape, axis + 1, 1))
    if axis != place.axis:
        order = [i for i in range(array.ndim) if i != axis]
        array = jax.lax.transpose(array, inserted(order, place.axis, axis))
    if place.extra:
        return array
    shape = array.shape
    return array.reshape((*shape[: place.axis + 1], *shape[place.axis + 2 :]))
