"""Equations that say where arrays are, or communicate between devices of a `shard_map`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from bk_jax import _compat
from bk_jax.program.batching.value import Value
from bk_jax.sharding.constraints import over_examples


def constraint(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """What is said about an axis of size 1 is meant for the axis of examples."""
    (value,) = operands
    axis, extra = value.place
    assert axis is not None
    sharding = over_examples(eqn.params["sharding"], value.shape, axis, extra)
    if sharding is None:
        return None
    return [Value(jax.lax.with_sharding_constraint(value.array, sharding), value.place)]


def pass_through(eqn: Any, operands: Sequence[Value], size: int) -> list[Value] | None:
    """Each result is where its operand is; no axis of an array is communicated along."""
    axes = eqn.params.get("axes", ())
    if not all(isinstance(axis, str) for axis in axes):
        return None
    outs = _compat.bind(eqn, [operand.array for operand in operands])
    return [Value(out, operand.place) for out, operand in zip(outs, operands, strict=True)]


RULES = {
    "optimization_barrier": pass_through,
    "psum": pass_through,
    "psum_invariant": pass_through,
    "pvary": pass_through,
    "sharding_constraint": constraint,
}
