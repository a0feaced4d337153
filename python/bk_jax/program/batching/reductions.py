"""Equations that reduce axes, or slide a window over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bk_jax.program.batching.shapes import rebind
from bk_jax.program.batching.value import Place, Value, at, replaced


def reduce(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """Over other axes; a reduction over the one example of an axis is that example."""
    (value,), axis, axes = operands, operands[0].grown, eqn.params["axes"]
    if axis is None or eqn.params.get("out_sharding") is not None:
        return None
    others = tuple(a for a in axes if a != axis)
    out = rebind(eqn, [value.array], axes=others)[0] if others else value.array
    return [Value(out, Place(axis - sum(a < axis for a in axes), axis in axes))]


def find_extreme(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """`argmax` and `argmin` over another axis."""
    return None if operands[0].grown in eqn.params["axes"] else reduce(eqn, operands, size)


_WINDOW = {
    "window_dimensions": 1,
    "window_strides": 1,
    "padding": (0, 0),
    "base_dilation": 1,
    "window_dilation": 1,
}


def window(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """A window of size 1 over the axis of examples; starting values are the same for all."""
    rank = len(eqn.params["window_dimensions"])
    images = [v for v in operands if len(v.shape) == rank]
    axis = next((v.grown for v in images if v.grown is not None), None)
    if axis is None or any(v.is_batched for v in operands if len(v.shape) != rank):
        return None
    params = eqn.params
    if params["window_dimensions"][axis] != 1 or tuple(params["padding"][axis]) != (0, 0):
        return None
    if any(v.shape[axis] != 1 for v in images):
        return None
    place = Place(axis)
    arrays = [at(v, place, size).array if len(v.shape) == rank else v.array for v in operands]
    neutral = {k: replaced(params[k], axis, v) for k, v in _WINDOW.items() if k in params}
    return [Value(out, place) for out in rebind(eqn, arrays, **neutral)]


RULES = {
    **{f"reduce_{name}": reduce for name in ("sum", "max", "min", "prod", "and", "or", "xor")},
    "argmax": find_extreme,
    "argmin": find_extreme,
    "reduce_window": window,
    "reduce_window_sum": window,
    "reduce_window_max": window,
    "reduce_window_min": window,
    "select_and_scatter_add": window,
    "select_and_gather_add": window,
}
