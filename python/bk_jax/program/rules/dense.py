"""The dense rule: any `dot_general` of which one operand is a parameter.

Whatever the number and order of its dimensions, a `dot_general` of activation and weight is, after
grouping dimensions, `y[n, t, :] = a[n, t, :] @ W[n]` with

    n  dimensions that both operands and the result share (experts, stacked heads)
    t  dimensions of the activation alone (tokens, pixels; the size-1 batch axis of the example)
    d  contracted dimensions
    p  dimensions of the weight alone

The book keeps `a[n..., T, d...]`, the tap has shape `[n..., T, p...]`, and the gradient of the weight is
`a[n]^T g[n]`; axes of the weight stay apart, because each of them may be cut over devices. To make
gradients of equal weights comparable however they were used (`x @ W` here and `z @ W.T` there), it is
laid out as `[n..., rows..., columns...]`, where `rows` is the group of weight dimensions that holds the
first one; `swap` says that these are the `p` dimensions.
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
class DenseUse:
    """How one `dot_general` maps onto the grouped form; see the module's docstring."""

    activation_operand: int
    activation_order: Dims  # activation dimensions in the order n, t, d
    result_order: Dims  # result dimensions in the order n, t, p
    result_shape: Dims
    weight_shape: Dims
    weight_dims: tuple[Dims, Dims, Dims]  # weight dimensions of n, d, p
    sizes: tuple[int, int, int, int]  # N, T, d, p
    dtype: Any  # of the result, hence of the output gradient

    kind = "dense"

    @property
    def swap(self) -> bool:
        """Whether the rows of the weight are its `p` dimensions."""
        _, contracted, free = self.weight_dims
        return bool(free) and (not contracted or free[0] < contracted[0])

    @property
    def form(self) -> tuple[Any, ...]:
        """Equal for uses that see a weight as the same matrix, up to transposition."""
        shared, contracted, free = self.weight_dims
        return ("matrix", shared, frozenset((contracted, free)))

    @property
    def tap_shape(self) -> Dims:
        """Shape of the perturbation of the result, `[n..., T, p...]`."""
        shared, _, free = self.weight_dims
        return (*self._lengths(shared), self.sizes[1], *self._lengths(free))

    def _lengths(self, dims: Dims) -> Dims:
        return tuple(self.weight_shape[i] for i in dims)

    def record(self, operands: list[Any]) -> jax.Array:
        """The activation of one example as `[n..., T, d...]`."""
        shared, contracted, _ = self.weight_dims
        shape = (*self._lengths(shared), self.sizes[1], *self._lengths(contracted))
        activation = operands[self.activation_operand]
        return jnp.transpose(activation, self.activation_order).reshape(shape)

    def add_tap(self, result: jax.Array, tap: jax.Array) -> jax.Array:
        """Adds a tap to the result; groups of its axes may be merged."""
        grouped = tap.reshape([self.result_shape[i] for i in self.result_order])
        return result + jnp.transpose(grouped, np.argsort(self.result_order).tolist())

    @property
    def _order(self) -> Dims:
        """Axes of the weight in the order of `[n..., rows..., columns...]`."""
        shared, contracted, free = self.weight_dims
        return (*shared, *free, *contracted) if self.swap else (*shared, *contracted, *free)

    @property
    def in_order(self) -> bool:
        """Whether `to_weight` moves nothing."""
        return list(self._order) == sorted(self._order)

    def from_weight(self, array: jax.Array, stack: int = 0) -> jax.Array:
        """Turns `[stack..., *dims of the weight]` into `[stack..., n..., rows..., columns...]`."""
        return jnp.transpose(array, [*range(stack), *(stack + i for i in self._order)])

    def to_weight(self, gradient: jax.Array, stack: Dims = ()) -> jax.Array:
        """Turns `[stack..., n..., rows..., columns...]` into `[stack..., *weight_shape]`."""
        grouped = gradient.reshape(*stack, *self._lengths(self._order))
        inverse = [len(stack) + int(i) for i in np.argsort(self._order)]
        return jnp.transpose(grouped, [*range(len(stack)), *inverse])


def rule(
    eqn: Any, weight_operand: int, views: tuple[View, ...]
) -> tuple[DenseUse, tuple[View, ...]]:
    """The dense use of operand number `weight_operand` of a `dot_general` equation."""
    views, base = strip_transposes(views)
    (contract, batch) = eqn.params["dimension_numbers"]
    other = 1 - weight_operand
    contracted = sorted(
        (base[w], a) for w, a in zip(contract[weight_operand], contract[other], strict=True)
    )
    pairs = [(base[w], a) for w, a in zip(batch[weight_operand], batch[other], strict=True)]
    shared_order = sorted(range(len(pairs)), key=lambda i: pairs[i][0])
    shared = [pairs[i] for i in shared_order]
    activation, weight = eqn.invars[other].aval, eqn.invars[weight_operand].aval
    taken = contracted + shared
    free_a = [i for i in range(activation.ndim) if i not in {a for _, a in taken}]
    free_w = [base[i] for i in range(weight.ndim) if base[i] not in {w for w, _ in taken}]

    shape = views[0].shape
    n_dims, d_dims = tuple(w for w, _ in shared), tuple(w for w, _ in contracted)
    p_dims = tuple(sorted(free_w))
    t_size = math.prod(activation.shape[i] for i in free_a)
    use = DenseUse(
        activation_operand=other,
        activation_order=(*(a for _, a in shared), *free_a, *(a for _, a in contracted)),
        result_order=_result_order(shared_order, len(free_a), free_w, weight_operand),
        result_shape=tuple(eqn.outvars[0].aval.shape),
        weight_shape=shape,
        weight_dims=(n_dims, d_dims, p_dims),
        sizes=(_size(shape, n_dims), t_size, _size(shape, d_dims), _size(shape, p_dims)),
        dtype=eqn.outvars[0].aval.dtype,
    )
    return use, views


def _size(shape: Dims, dims: Dims) -> int:
    return math.prod(shape[i] for i in dims)


def _result_order(
    shared_order: list[int], num_free_a: int, free_w: list[int], weight_operand: int
) -> Dims:
    """The dimensions of the result in the order n, t, p.

    A `dot_general` returns its batch dimensions, then the free ones of the left operand, then those
    of the right one.
    """
    num_shared = len(shared_order)
    start_a = num_shared + (len(free_w) if weight_operand == 0 else 0)
    start_w = num_shared + (num_free_a if weight_operand == 1 else 0)
    by_dimension = sorted(range(len(free_w)), key=lambda i: free_w[i])
    tokens = range(start_a, start_a + num_free_a)
    return (*shared_order, *tokens, *(start_w + i for i in by_dimension))
