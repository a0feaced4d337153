"""Matrix products and convolutions: the axis of examples is a batch axis, or one of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bk_jax import _compat
from bk_jax.program.batching.value import Place, Value, at


def dot_general(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """The same product with B in place of 1, if the axis is not contracted and paired with its like."""
    (contracted, batch), pair = eqn.params["dimension_numbers"], list(operands)
    if eqn.params.get("out_sharding") is not None:
        return None
    for this, other in ((0, 1), (1, 0)):
        axis = pair[this].grown
        if axis is None:
            continue
        if axis in batch[this] and pair[other].is_batched:
            number = tuple(batch[this]).index(axis)
            pair[other] = at(pair[other], Place(batch[other][number]), size)
            return _product(eqn, pair, Place(number))
        if axis not in (*contracted[this], *batch[this]) and not pair[other].is_batched:
            return _product(eqn, pair, Place(_free_position(eqn, this, axis)))
    return None


def _product(eqn: Any, pair: Sequence[Value], place: Place) -> list[Value]:
    return [Value(out, place) for out in _compat.bind(eqn, [value.array for value in pair])]


def _free_position(eqn: Any, operand: int, axis: int) -> int:
    """The axis of the result that is this free axis of an operand: batch, left, right."""
    contracted, batch = eqn.params["dimension_numbers"]

    def free(number: int) -> list[int]:
        taken = {*contracted[number], *batch[number]}
        return [i for i in range(len(eqn.invars[number].aval.shape)) if i not in taken]

    ahead = len(free(0)) if operand == 1 else 0
    return len(batch[0]) + ahead + free(operand).index(axis)


def convolution(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """Images are examples; the kernel is the same for all."""
    image, kernel = operands
    numbers = eqn.params["dimension_numbers"]
    if kernel.is_batched or image.grown != numbers.lhs_spec[0]:
        return None
    if eqn.params["batch_group_count"] != 1:
        return None
    (out,) = _compat.bind(eqn, [image.array, kernel.array])
    return [Value(out, Place(numbers.out_spec[0]))]


RULES = {"dot_general": dot_general, "conv_general_dilated": convolution}
