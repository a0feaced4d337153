"""Sharding constraints in a loss: what they say about the batch is meant for all examples.

A model written for many devices pins its activations: `with_sharding_constraint(x, P("data"))`. The
loss sees one example, whose batch axis has size 1; split there, all examples would go to one
device. So mesh axes that split an axis of size 1 are taken to split the axis of examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.sharding import NamedSharding, PartitionSpec


def over_examples(
    sharding: Any, shape: Sequence[int], axis: int, extra: bool
) -> NamedSharding | None:
    """A sharding of one example's array as that of all examples, at this axis of the array.

    `None` for a sharding that says nothing of axes.

    Args:
      sharding: of one example's array.
      shape: of that array.
      axis: the axis of examples in the array of all.
      extra: whether one example's array lacks that axis.
    """
    if not isinstance(sharding, NamedSharding):
        return None
    spec = (*sharding.spec, *[None] * (len(shape) - len(sharding.spec)))
    cut = [entry for entry, size in zip(spec, shape, strict=True) if size == 1 and entry]
    names = tuple(name for e in cut for name in ((e,) if isinstance(e, str) else tuple(e)))
    entries = [None if size == 1 else entry for entry, size in zip(spec, shape, strict=True)]
    new = [*entries[:axis], names or None, *entries[axis + (0 if extra else 1) :]]
    return NamedSharding(sharding.mesh, PartitionSpec(*new))
