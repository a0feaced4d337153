"""Equations that move elements: reshape, broadcast, transpose, slice, pad, concatenate and the like.

With the axis of examples where it is, they are the same equation with B in place of 1, as long as they
leave that axis alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax

from bk_jax import _compat
from bk_jax.program.batching.elementwise import common_place
from bk_jax.program.batching.value import Place, Value, at, grown_shape, inserted, replaced


def rebind(eqn: Any, operands: Sequence[Any], **changed: Any) -> list[Any]:
    """The results of an equation with some parameters changed."""
    return _compat.bind(eqn.replace(params={**eqn.params, **changed}), operands)


def broadcast_in_dim(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """The axis stays; an extra one becomes a new axis of size 1 if there is one where it belongs."""
    (value,), shape = operands, eqn.params["shape"]
    if eqn.params["sharding"] is not None:
        return None
    dims, axis = tuple(eqn.params["broadcast_dimensions"]), value.grown
    if axis is not None and shape[dims[axis]] == 1:
        new = replaced(shape, dims[axis], size)
        return [Value(_broadcast(value.array, new, dims), Place(dims[axis]))]
    if axis is not None:  # an axis of size 1 is repeated: the examples are beside it from now on
        value = at(value, Place(axis, extra=True), size)
    return [_broadcast_extra(value, shape, dims, size)]


def _broadcast_extra(value: Value, shape: Sequence[int], dims: Sequence[int], size: int) -> Value:
    axis = value.place.axis
    assert axis is not None
    first = dims[axis - 1] + 1 if axis else 0
    last = dims[axis] if axis < len(dims) else len(shape)
    for new in range(first, last):
        if shape[new] == 1:
            whole = _broadcast(value.array, replaced(shape, new, size), inserted(dims, axis, new))
            return Value(whole, Place(new))
    shifted = inserted([d + (d >= first) for d in dims], axis, first)
    whole = _broadcast(value.array, inserted(shape, first, size), shifted)
    return Value(whole, Place(first, extra=True))


def _broadcast(array: Any, shape: Sequence[int], dims: Sequence[int]) -> Any:
    if tuple(array.shape) == tuple(shape):
        return array
    return jax.lax.broadcast_in_dim(array, shape, dims)


def reshape(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """The axis stays between the elements that it was between, as an axis of size 1 or an extra one."""
    (value,), shape = operands, eqn.params["new_sizes"]
    if eqn.params["dimensions"] is not None or eqn.params["sharding"] is not None:
        return None
    place = _place_between(shape, value)
    if place is None:
        front = Place(0, extra=True)
        value, place = at(value, front, size), front
    axis, extra = place
    assert axis is not None
    new = inserted(shape, axis, size) if extra else grown_shape(shape, axis, value)
    return [Value(jax.lax.reshape(value.array, new), place)]


def _place_between(shape: Sequence[int], value: Value) -> Place | None:
    """Where the same elements are in front of the axis; an axis of size 1 if one is there."""
    fits = [i for i in range(len(shape) + 1) if math.prod(shape[:i]) == value.before]
    units = [i for i in fits if i < len(shape) and shape[i] == 1]
    if units:
        return Place(value.grown if value.grown in units else units[0])
    return Place(fits[0], extra=True) if fits else None


def squeeze(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """Axes of size 1 go; if that of the examples goes, they stay as an extra axis."""
    (value,), dims, axis = operands, eqn.params["dimensions"], operands[0].grown
    if axis is None:
        return None
    left = axis - sum(d < axis for d in dims)
    extra = axis in dims
    shape = [n for i, n in enumerate(value.array.shape) if i == axis or i not in dims]
    return [Value(jax.lax.reshape(value.array, shape), Place(left, extra))]


def transpose(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """The axis goes where the permutation puts it."""
    (value,), axis = operands, operands[0].grown
    if axis is None:
        return None
    (out,) = _compat.bind(eqn, [value.array])
    return [Value(out, Place(tuple(eqn.params["permutation"]).index(axis)))]


def slice_(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """The axis is taken whole."""
    (value,), axis, params = operands, operands[0].grown, eqn.params
    if axis is None or params["limit_indices"][axis] - params["start_indices"][axis] != 1:
        return None
    strides = params["strides"]
    outs = rebind(
        eqn,
        [value.array],
        start_indices=replaced(params["start_indices"], axis, 0),
        limit_indices=replaced(params["limit_indices"], axis, size),
        strides=None if strides is None else replaced(strides, axis, 1),
    )
    return [Value(out, value.place) for out in outs]


def pad(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """Padding of other axes."""
    value, filling = operands
    axis, config = value.grown, tuple(eqn.params["padding_config"])
    if axis is None or filling.is_batched or tuple(config[axis][:2]) != (0, 0):
        return None
    arrays = [value.array, filling.array]
    (out,) = rebind(eqn, arrays, padding_config=replaced(config, axis, (0, 0, 0)))
    return [Value(out, value.place)]


def rev(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """One example turned round is itself."""
    (value,), axis = operands, operands[0].grown
    if axis is None:
        return None
    others = tuple(d for d in eqn.params["dimensions"] if d != axis)
    (out,) = rebind(eqn, [value.array], dimensions=others)
    return [Value(out, value.place)]


def concatenate(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """Along another axis; what all examples share is repeated."""
    along = eqn.params["dimension"]
    axis = next((v.grown for v in operands if v.grown is not None and v.grown != along), None)
    if axis is None or any(v.shape[axis] != 1 for v in operands):
        return None
    arrays = [at(operand, Place(axis), size).array for operand in operands]
    return [Value(out, Place(axis)) for out in _compat.bind(eqn, arrays)]


def stack(eqn: Any, operands: Sequence[Value], size: int) -> list[Value]:
    """A new axis in front of the axis of examples moves it on."""
    new = eqn.params["axis"]
    place = common_place(operands, operands[0].shape)
    arrays = [at(operand, place, size).array for operand in operands]
    assert place.axis is not None
    moves = new <= place.axis
    (out,) = rebind(eqn, arrays, axis=new + (1 if place.extra and not moves else 0))
    return [Value(out, Place(place.axis + moves, place.extra))]


def along_another(name: str) -> Any:
    """The rule of an equation that works along one axis, which its parameter `name` says."""

    def rule(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
        rank = len(operands[0].shape)
        along = eqn.params[name] % max(rank, 1)
        places = [v.grown for v in operands if v.grown is not None and v.grown != along]
        if not places or any(v.place.extra or v.shape[places[0]] != 1 for v in operands):
            return None
        place = Place(places[0])
        arrays = [at(operand, place, size).array for operand in operands]
        return [Value(out, place) for out in _compat.bind(eqn, arrays)]

    return rule


def unstack(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """Slices along another axis, which goes."""
    (value,), axis, along = operands, operands[0].grown, eqn.params["axis"]
    if axis is None or axis == along:
        return None
    outs = _compat.bind(eqn, [value.array])
    return [Value(out, Place(axis - (along < axis))) for out in outs]


def tile(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """Repetitions along other axes."""
    (value,), axis = operands, operands[0].grown
    if axis is None or eqn.params["reps"][axis] != 1:
        return None
    (out,) = _compat.bind(eqn, [value.array])
    return [Value(out, value.place)]


RULES = (
    {
        "broadcast_in_dim": broadcast_in_dim,
        "concatenate": concatenate,
        "pad": pad,
        "reshape": reshape,
        "rev": rev,
        "slice": slice_,
        "split": along_another("axis"),
        "squeeze": squeeze,
        "stack": stack,
        "tile": tile,
        "transpose": transpose,
        "unstack": unstack,
    }
    | {
        name: along_another("axis")
        for name in ("cumsum", "cumlogsumexp", "cumprod", "cummax", "cummin", "top_k")
    }
    | {"sort": along_another("dimension")}
)
