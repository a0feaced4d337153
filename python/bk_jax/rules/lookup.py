"""The lookup rule: rows of a parameter picked by index (`jnp.take`, `W[ids]`, embedding layers).

Grouped, a lookup is `y[t, :] = W[ids[t], :]`: the book keeps the `ids[T]`, the tap has shape `[T, p]`,
and the gradient of the weight has `g[t]` added to row `ids[t]`. An index outside the table reads
nothing and gets no gradient (the book holds -1), unless the operation clamps it.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax.views import View, strip_transposes

Dims = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class LookupUse:
    """How one gather maps onto the grouped form; see the module's docstring."""

    index_operands: tuple[int, ...]  # those that hold the index: one array, or one scalar
    clamps: bool
    result_order: Dims  # result dimensions in the order t, p
    result_shape: Dims
    weight_shape: Dims
    weight_groups: tuple[Dims, Dims]  # weight dimensions of the rows and of p
    sizes: tuple[int, int, int, int]  # 1, T, number of rows, p
    dtype: Any

    kind = "lookup"

    @property
    def form(self) -> tuple[Any, ...]:
        """Equal to the form of a dense use of the same table."""
        return ("matrix", (), frozenset(self.weight_groups))

    @property
    def tap_shape(self) -> Dims:
        """Shape of the perturbation of the result, grouped."""
        _, t, _, p = self.sizes
        return (t, p)

    def record(self, operands: list[Any]) -> jax.Array:
        """The row numbers of one example, `[T]`; -1 for an index that reads nothing."""
        (operand,) = self.index_operands
        ids = jnp.ravel(operands[operand])
        last = self.sizes[2] - 1
        inside = jnp.clip(ids, 0, min(last, jnp.iinfo(ids.dtype).max)).astype(jnp.int32)
        if self.clamps:
            return inside
        return jnp.where(ids == inside.astype(ids.dtype), inside, -1)

    def add_tap(self, result: jax.Array, tap: jax.Array) -> jax.Array:
        """Adds a tap of shape `[T, p]` to the result."""
        grouped = tap.reshape([self.result_shape[i] for i in self.result_order])
        return result + jnp.transpose(grouped, np.argsort(self.result_order).tolist())

    def to_weight(self, gradient: jax.Array) -> jax.Array:
        """Turns `[stack..., rows, p]` into `[stack..., *weight_shape]`."""
        stack = gradient.shape[:-2]
        order = (*self.weight_groups[0], *self.weight_groups[1])
        grouped = gradient.reshape(*stack, *(self.weight_shape[i] for i in order))
        inverse = [len(stack) + int(i) for i in np.argsort(order)]
        return jnp.transpose(grouped, [*range(len(stack)), *inverse])


def gather_rule(
    eqn: Any, operand: int, views: tuple[View, ...]
) -> tuple[LookupUse, tuple[View, ...]] | None:
    """A gather of whole rows along one axis of the parameter."""
    numbers, slice_sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    table, indices = eqn.invars[0].aval, eqn.invars[1].aval
    if operand != 0 or numbers.operand_batching_dims or len(numbers.start_index_map) != 1:
        return None
    (axis,) = numbers.start_index_map
    row = tuple(1 if i == axis else size for i, size in enumerate(table.shape))
    if numbers.collapsed_slice_dims != (axis,) or tuple(slice_sizes) != row:
        return None
    offsets = list(numbers.offset_dims)
    tokens = [i for i in range(eqn.outvars[0].aval.ndim) if i not in offsets]
    clamps = eqn.params["mode"] == jax.lax.GatherScatterMode.CLIP
    num_tokens = math.prod(indices.shape[:-1])
    return _make(eqn, views, axis, (1,), clamps, tokens, offsets, num_tokens)


def dynamic_slice_rule(
    eqn: Any, operand: int, views: tuple[View, ...]
) -> tuple[LookupUse, tuple[View, ...]] | None:
    """One row of the parameter, at an index known only at run time."""
    table, slice_sizes = eqn.invars[0].aval, eqn.params["slice_sizes"]
    partial = [i for i, (s, n) in enumerate(zip(slice_sizes, table.shape, strict=True)) if s != n]
    if operand != 0 or len(partial) != 1 or slice_sizes[partial[0]] != 1:
        return None
    (axis,) = partial
    others = [i for i in range(table.ndim) if i != axis]
    return _make(eqn, views, axis, (1 + axis,), True, [axis], others, 1)


def _make(
    eqn: Any,
    views: tuple[View, ...],
    axis: int,
    index_operands: tuple[int, ...],
    clamps: bool,
    tokens: list[int],
    offsets: list[int],
    num_tokens: int,
) -> tuple[LookupUse, tuple[View, ...]]:
    """`offsets` are the result dimensions of the table's dimensions other than `axis`, in order."""
    views, base = strip_transposes(views)
    shape = views[0].shape
    columns = [base[i] for i in range(len(base)) if i != axis]
    by_dimension = sorted(range(len(columns)), key=lambda i: columns[i])
    rows = shape[base[axis]]
    use = LookupUse(
        index_operands=index_operands,
        clamps=clamps,
        result_order=(*tokens, *(offsets[i] for i in by_dimension)),
        result_shape=tuple(eqn.outvars[0].aval.shape),
        weight_shape=shape,
        weight_groups=((base[axis],), tuple(sorted(columns))),
        sizes=(1, num_tokens, rows, math.prod(shape) // max(rows, 1)),
        dtype=eqn.outvars[0].aval.dtype,
    )
    return use, views
