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

from bk_jax.program.views import View, strip_transposes

Dims = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class LookupUse:
    """How one gather maps onto the grouped form; see the module's docstring."""

    index_operand: int
    index_component: int  # which number of an index vector is the row
    clamps: bool
    result_order: Dims  # result dimensions in the order t, p
    result_shape: Dims
    weight_shape: Dims
    weight_dims: tuple[Dims, Dims]  # weight dimensions of the rows and of p
    sizes: tuple[int, int, int, int]  # 1, T, number of rows, p
    dtype: Any
    span: int = 1  # how many rows an index reads, one after the other

    kind = "lookup"

    @property
    def form(self) -> tuple[Any, ...]:
        """Equal to the form of a dense use of the same table."""
        return ("matrix", (), frozenset(self.weight_dims))

    @property
    def tap_shape(self) -> Dims:
        """Shape of the perturbation of the result, grouped."""
        _, t, _, p = self.sizes
        return (t, p)

    def record(self, operands: list[Any]) -> jax.Array:
        """The row numbers of one example, `[T]`; -1 for an index that reads nothing."""
        indices = jnp.atleast_1d(operands[self.index_operand])
        ids = jnp.ravel(indices[..., self.index_component])
        last = self.sizes[2] - self.span
        inside = jnp.clip(ids, 0, min(last, jnp.iinfo(ids.dtype).max)).astype(jnp.int32)
        if self.clamps:
            return jnp.ravel(inside[:, None] + jnp.arange(self.span, dtype=jnp.int32))
        return jnp.where(ids == inside.astype(ids.dtype), inside, -1)

    def add_tap(self, result: jax.Array, tap: jax.Array) -> jax.Array:
        """Adds a tap of shape `[T, p]` to the result."""
        grouped = tap.reshape([self.result_shape[i] for i in self.result_order])
        return result + jnp.transpose(grouped, np.argsort(self.result_order).tolist())

    def to_weight(self, gradient: jax.Array) -> jax.Array:
        """Turns `[stack..., rows, p]` into `[stack..., *weight_shape]`."""
        stack = gradient.shape[:-2]
        order = (*self.weight_dims[0], *self.weight_dims[1])
        grouped = gradient.reshape(*stack, *(self.weight_shape[i] for i in order))
        inverse = [len(stack) + int(i) for i in np.argsort(order)]
        return jnp.transpose(grouped, [*range(len(stack)), *inverse])


def gather_rule(
    eqn: Any, operand: int, views: tuple[View, ...]
) -> tuple[LookupUse, tuple[View, ...]] | None:
    """A gather of whole rows along one axis of the parameter."""
    numbers, mode = eqn.params["dimension_numbers"], eqn.params["mode"]
    table, indices = eqn.invars[0].aval, eqn.invars[1].aval
    axis = _row_axis(numbers.collapsed_slice_dims, eqn.params["slice_sizes"], table.shape)
    if operand != 0 or axis is None or axis not in numbers.start_index_map:
        return None
    if numbers.operand_batching_dims:
        return None
    clamps = mode == jax.lax.GatherScatterMode.CLIP
    if len(numbers.start_index_map) > 1 and not clamps:
        return None  # clamping makes an index into a whole dimension 0, other modes may drop it
    kept = [i for i in range(table.ndim) if i not in numbers.collapsed_slice_dims]
    offset_of = dict(zip(kept, numbers.offset_dims, strict=True))
    tokens = [i for i in range(eqn.outvars[0].aval.ndim) if i not in numbers.offset_dims]
    tokens += [offset_of[axis]] if axis in offset_of else []
    offsets = [offset_of[i] for i in kept if i != axis]
    index = (1, numbers.start_index_map.index(axis))
    num_tokens = math.prod(indices.shape[:-1])
    return _make(eqn, views, axis, index, clamps, tokens, offsets, num_tokens)


def _row_axis(collapsed: Dims, slice_sizes: Dims, shape: Dims) -> int | None:
    """The one axis of which a single entry is read while all others are read whole."""
    partial = [i for i, (s, n) in enumerate(zip(slice_sizes, shape, strict=True)) if s != n]
    axes = list(dict.fromkeys([*collapsed, *partial]))
    return axes[0] if len(axes) == 1 and slice_sizes[axes[0]] == 1 else None


def dynamic_slice_rule(
    eqn: Any, operand: int, views: tuple[View, ...]
) -> tuple[LookupUse, tuple[View, ...]] | None:
    """Rows of the parameter that follow each other, as position tables are read."""
    table, sizes = eqn.invars[0].aval, eqn.params["slice_sizes"]
    partial = [i for i, (s, n) in enumerate(zip(sizes, table.shape, strict=True)) if s != n]
    if operand != 0 or table.ndim == 0 or len(partial) > 1:
        return None
    axis = partial[0] if partial else 0  # a table may be read as a whole
    others = [i for i in range(table.ndim) if i != axis]
    found = _make(eqn, views, axis, (1 + axis, 0), True, [axis], others, sizes[axis])
    return dataclasses.replace(found[0], span=sizes[axis]), found[1]


def _make(
    eqn: Any,
    views: tuple[View, ...],
    axis: int,
    index: tuple[int, int],  # operand and component
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
        index_operand=index[0],
        index_component=index[1],
        clamps=clamps,
        result_order=(*tokens, *(offsets[i] for i in by_dimension)),
        result_shape=tuple(eqn.outvars[0].aval.shape),
        weight_shape=shape,
        weight_dims=((base[axis],), tuple(sorted(columns))),
        sizes=(1, num_tokens, rows, math.prod(shape) // max(rows, 1)),
        dtype=eqn.outvars[0].aval.dtype,
    )
    return use, views
