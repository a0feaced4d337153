"""Gathers, scatters and dynamic slices: indices of all examples, or the same for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bk_jax import _compat
from bk_jax.program.batching.shapes import rebind
from bk_jax.program.batching.value import Place, Value, at, replaced


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
    axis = indices.grown
    if not table.is_batched and axis is not None:
        return _rows_of_table(eqn, table, indices, axis)
    if table.grown is None:
        return None
    if not indices.is_batched:
        return _same_rows(eqn, table, indices, table.grown, size)
    return _own_rows(eqn, table, indices)


def _rows_of_table(eqn: Any, table: Value, indices: Value, axis: int) -> list[Value] | None:
    numbers = eqn.params["dimension_numbers"]
    if axis in numbers.start_indices_batching_dims or axis == len(indices.shape) - 1:
        return None
    (out,) = rebind(
        eqn, [table.array, indices.array], indices_are_sorted=False, unique_indices=False
    )
    return [Value(out, Place(_index_position(eqn, axis)))]


def _same_rows(eqn: Any, table: Value, indices: Value, axis: int, size: int) -> list[Value] | None:
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    fixed = (numbers.collapsed_slice_dims, numbers.start_index_map, numbers.operand_batching_dims)
    if any(axis in dims for dims in fixed) or sizes[axis] != 1:
        return None
    kept = [
        i
        for i in range(len(table.shape))
        if i not in numbers.collapsed_slice_dims and i not in numbers.operand_batching_dims
    ]
    (out,) = rebind(eqn, [table.array, indices.array], slice_sizes=replaced(sizes, axis, size))
    return [Value(out, Place(numbers.offset_dims[kept.index(axis)]))]


def _own_rows(eqn: Any, table: Value, indices: Value) -> list[Value] | None:
    numbers = eqn.params["dimension_numbers"]
    pairs = zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    if (table.grown, indices.grown) not in tuple(pairs):
        return None
    (out,) = rebind(eqn, [table.array, indices.array], indices_are_sorted=False)
    return [Value(out, Place(_index_position(eqn, indices.grown)))]


def _index_position(eqn: Any, axis: int | None) -> int:
    """The axis of the result that an axis of the indices becomes."""
    offsets = eqn.params["dimension_numbers"].offset_dims
    rank = len(eqn.outvars[0].aval.shape)
    assert axis is not None
    return [i for i in range(rank) if i not in offsets][axis]


def scatter(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """Each example's updates at its own indices, in its own part of the operand."""
    target, indices, updates = operands
    numbers = eqn.params["dimension_numbers"]
    pairs = dict(
        zip(numbers.scatter_indices_batching_dims, numbers.operand_batching_dims, strict=True)
    )
    axis = indices.grown
    if axis is None or axis not in pairs or target.place.extra or updates.place.extra:
        return None
    windows = numbers.update_window_dims
    rank = len(updates.shape)
    update_axis = [i for i in range(rank) if i not in windows][axis]
    arrays = [
        at(target, Place(pairs[axis]), size).array,
        indices.array,
        at(updates, Place(update_axis), size).array,
    ]
    (out,) = rebind(eqn, arrays, indices_are_sorted=False)
    return [Value(out, Place(pairs[axis]))]


RULES = {
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "gather": gather,
    **{f"scatter{kind}": scatter for kind in ("", "_add", "_sub", "_mul", "_min", "_max")},
}
