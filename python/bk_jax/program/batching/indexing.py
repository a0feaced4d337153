"""Gathers, scatters and dynamic slices: indices of all examples, or the same for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bk_jax import _compat
from bk_jax.program.batching import numbers
from bk_jax.program.batching.shapes import rebind
from bk_jax.program.batching.value import ABSENT, Place, Value, at, replaced


def dynamic_slice(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """The same part of every example; a start is moved to where the part fits, which is 0."""
    value, *starts = operands
    axis, sizes = value.grown, eqn.params["slice_sizes"]
    if axis is None or sizes[axis] != 1 or any(start.is_batched for start in starts):
        return None
    arrays = [value.array, *(start.array for start in starts)]
    (out,) = rebind(eqn, arrays, slice_sizes=replaced(sizes, axis, size))
    return [Value(out, value.place)]


def dynamic_update_slice(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """The same part of every example replaced."""
    value, update, *starts = operands
    axis = update.grown if value.grown is None else value.grown
    if axis is None or any(start.is_batched for start in starts):
        return None
    if value.shape[axis] != 1 or update.shape[axis] != 1:
        return None
    whole, part = (at(v, Place(axis), size).array for v in (value, update))
    (out,) = _compat.bind(eqn, [whole, part, *(start.array for start in starts)])
    return [Value(out, Place(axis))]


def gather(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """Rows of a table for all examples, the same rows of each, or rows of each by its own indices."""
    table, indices = operands
    axis = table.grown
    if not table.is_batched and indices.grown is not None:
        return _rows_of_table(eqn, table, indices, indices.grown)
    if axis is None:
        return None
    if (axis, indices.grown) in numbers.pairs(eqn).items():
        return _own_rows(eqn, table, indices, axis, size)
    if axis not in numbers.spanned(eqn) or eqn.params["slice_sizes"][axis] != 1:
        return None
    take = _rows_of_windows if indices.is_batched else _same_rows
    return take(eqn, table, indices, axis, size)


def _rows_of_table(eqn: Any, table: Value, indices: Value, axis: int) -> list[Value] | None:
    if axis in numbers.pairs(eqn).values() or axis == len(indices.shape) - 1:
        return None
    arrays = [table.array, indices.array]
    (out,) = rebind(eqn, arrays, indices_are_sorted=False, unique_indices=False)
    return [Value(out, Place(numbers.of_indices(eqn, axis)))]


def _same_rows(eqn: Any, table: Value, indices: Value, axis: int, size: int) -> list[Value]:
    sizes = replaced(eqn.params["slice_sizes"], axis, size)
    (out,) = rebind(eqn, [table.array, indices.array], slice_sizes=sizes)
    return [Value(out, Place(numbers.spanned(eqn)[axis]))]


def _own_rows(eqn: Any, table: Value, indices: Value, axis: int, size: int) -> list[Value]:
    sizes = replaced(eqn.params["slice_sizes"], axis, min(size, 1))
    arrays = [table.array, indices.array]
    (out,) = rebind(eqn, arrays, indices_are_sorted=False, slice_sizes=sizes)
    own = numbers.pairs(eqn)[axis]
    return [Value(out, Place(numbers.of_indices(eqn, own)))]


def _rows_of_windows(eqn: Any, table: Value, indices: Value, axis: int, size: int) -> list[Value]:
    """The axis of size 1 lies in every window, as that of `take_along_axis` does: it gets a pair."""
    new, position = numbers.with_pair(eqn, axis)
    sizes = replaced(eqn.params["slice_sizes"], axis, min(size, 1))
    arrays = [table.array, at(indices, Place(position, extra=True), size).array]
    changed = {"dimension_numbers": new, "slice_sizes": sizes, "indices_are_sorted": False}
    (out,) = rebind(eqn, arrays, **changed)
    return [Value(out, Place(numbers.spanned(eqn)[axis]))]


def scatter(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """Each example's updates in its own part of the target, at its own indices or at shared ones."""
    target, indices, updates = operands
    for axis, own in numbers.pairs(eqn).items():
        if indices.grown == own:
            places = (Place(axis), indices.place, Place(numbers.of_indices(eqn, own)))
            return _scattered(eqn, operands, places, size)
    window = _axis_in_windows(eqn, target, updates)
    return None if window is None else _into_windows(eqn, operands, window, size)


def _axis_in_windows(eqn: Any, target: Value, updates: Value) -> int | None:
    """An axis of size 1 that lies in every update; the one that has grown, if one has."""
    spanned = numbers.spanned(eqn).items()
    units = [(axis, own) for axis, own in spanned if target.shape[axis] == updates.shape[own] == 1]
    grown = (axis for axis, own in units if target.grown == axis or updates.grown == own)
    return next(grown, units[0][0] if units else None)


def _into_windows(eqn: Any, operands: Sequence[Value], axis: int, size: int) -> list[Value]:
    """The axis lies in every update; where indices differ it gets a pair."""
    own = numbers.spanned(eqn)[axis]
    if not operands[1].is_batched:
        return _scattered(eqn, operands, (Place(axis), ABSENT, Place(own)), size)
    new, position = numbers.with_pair(eqn, axis)
    places = (Place(axis), Place(position, extra=True), Place(own))
    return _scattered(eqn, operands, places, size, dimension_numbers=new)


def _scattered(
    eqn: Any, operands: Sequence[Value], places: Sequence[Place], size: int, **changed: Any
) -> list[Value]:
    pairs = zip(operands, places, strict=True)
    arrays = [at(operand, place, size).array for operand, place in pairs]
    (out,) = rebind(eqn, arrays, indices_are_sorted=False, **changed)
    return [Value(out, places[0])]


RULES = {
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "gather": gather,
    **{f"scatter{kind}": scatter for kind in ("", "_add", "_sub", "_mul", "_min", "_max")},
}
