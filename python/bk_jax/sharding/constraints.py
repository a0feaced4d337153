"""Sharding constraints in a loss: what they say about the batch is meant for all examples.

A model written for many devices pins its activations: `with_sharding_constraint(x, P("data"))`. The
loss sees one example, whose batch axis has size 1; split there, all examples would go to one
device. So mesh axes that split an axis of size 1 are taken to split the axis of examples that
`vmap` adds.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from bk_jax import _compat
from bk_jax._compat import prims

sharding_constraint_p = prims.sharding_constraint_p


def constrain(eqn: Any, operand: Any) -> Any:
    """The result of a `sharding_constraint` on one example."""
    sharding = eqn.params["sharding"]
    spec = tuple(getattr(sharding, "spec", ()))
    sizes = eqn.invars[0].aval.shape
    cut = [entry for entry, size in zip(spec, sizes, strict=False) if size == 1 and entry]
    if not cut:
        (out,) = _compat.bind(eqn, [operand])
        return out
    axes = tuple(axis for e in cut for axis in ((e,) if isinstance(e, str) else tuple(e)))
    rest = (None if size == 1 else entry for entry, size in zip(spec, sizes, strict=False))
    return _over_examples(NamedSharding(sharding.mesh, PartitionSpec(axes, *rest)), operand)


def _over_examples(sharding: NamedSharding, operand: jax.Array) -> jax.Array:
    """Constrains the batch of all examples, and likewise the batch of their cotangents."""

    @jax.custom_batching.custom_vmap
    def place(x: jax.Array) -> jax.Array:
        return x

    @place.def_vmap
    def _(size: int, is_batched: Any, x: jax.Array) -> tuple[jax.Array, bool]:
        del size, is_batched
        return jax.lax.with_sharding_constraint(x, sharding), True

    @jax.custom_vjp
    def both_ways(x: jax.Array) -> jax.Array:
        return place(x)

    both_ways.defvjp(lambda x: (place(x), None), lambda _, g: (place(g),))
    return both_ways(operand)
