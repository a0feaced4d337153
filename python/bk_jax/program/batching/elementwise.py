"""Equations that look at one element at a time: all operands have their examples at the same place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from bk_jax import _compat
from bk_jax.program.batching.value import Place, Value, at

_NAMES = """
    abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e
    bitcast_convert_type cbrt ceil clamp clz complex conj convert_element_type copy cos cosh
    digamma div eq eq_to erf erf_inv erfc exp exp2 expm1 floor ge gt igamma igamma_grad_a
    igammac imag integer_pow is_finite le le_to lgamma log log1p logistic lt lt_to max min mul
    mulhi name ne neg nextafter not or polygamma population_count pow real reduce_precision
    regularized_incomplete_beta rem round rsqrt select_n shift_left shift_right_arithmetic
    shift_right_logical sign sin sinh sqrt square stop_gradient sub tan tanh xor zeta
"""

NAMES = tuple(_NAMES.split())


def elementwise(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """Any number of operands of one shape; scalars may stand for arrays."""
    shape = eqn.outvars[0].aval.shape
    if not _keeps_rank(eqn, operands):
        return None
    place = common_place(operands, shape)
    arrays = [_aligned(operand, place, shape, size) for operand in operands]
    return [Value(out, place) for out in _compat.bind(eqn, arrays)]


def common_place(operands: Sequence[Value], shape: Sequence[int]) -> Place:
    """Where the examples of all operands of this shape should be: in place if any of them is."""
    whole = [v for v in operands if v.is_batched and len(v.shape) == len(shape)]
    grown = [v.grown for v in whole if v.grown is not None]
    beside = [v.place.axis for v in whole] if whole else [0]
    for axis in (*grown, *beside):
        if axis is not None and axis < len(shape) and shape[axis] == 1:
            return Place(axis)
    return Place(beside[0], extra=True)


def _keeps_rank(eqn: Any, operands: Sequence[Value]) -> bool:
    """Bits seen as another type may be a longer or a shorter row; keys are none of our business."""
    rank, ranks = len(eqn.outvars[0].aval.shape), {len(operand.shape) for operand in operands}
    return rank in ranks and ranks <= {0, rank}


def _aligned(operand: Value, place: Place, shape: Sequence[int], size: int) -> Any:
    """An operand with its examples at a place; a scalar that all examples share stays one."""
    if operand.shape or not shape:
        return at(operand, place, size).array
    if not operand.is_batched:
        return operand.array
    return _spread(operand, place, shape)


def _spread(scalar: Value, place: Place, shape: Sequence[int]) -> Any:
    """A scalar for each example, as an array of this shape."""
    axis, extra = place
    assert axis is not None
    size = scalar.array.shape[0]
    whole = (*shape[:axis], size, *shape[axis + (0 if extra else 1) :])
    return jax.lax.broadcast_in_dim(scalar.array, whole, (axis,))
