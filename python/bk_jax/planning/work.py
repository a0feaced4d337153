"""Work: what a traced program does, in the units that a machine has rates for.

XLA fuses elementwise operations: what they make is mostly never written. Such results are counted
apart from arrays that are read and written for certain (sums, transposes, gathers, ...).
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from bk_jax import _compat
from bk_jax._compat import prims
from bk_jax.planning.flops import product_flops


class Product(NamedTuple):
    """A matrix product (`product`, `batched`) or a `convolution`."""

    kind: str
    flops: int
    nbytes: int  # of operands and result
    itemsize: int = 4  # of an operand's element
    pixels: int = 0  # of the result, for a convolution


@dataclasses.dataclass(frozen=True)
class Work:
    """Sums over a program; all whole numbers.

    Attributes:
      products: how often each product is computed.
      moved: bytes read and written for certain.
      fused: bytes of elementwise results.
      transcendental: elements of exp, tanh and the like.
      operations: equations that do anything.
    """

    products: collections.Counter[Product] = dataclasses.field(default_factory=collections.Counter)
    moved: int = 0
    fused: int = 0
    transcendental: int = 0
    operations: int = 0

    def times(self, number: int) -> Work:
        """The same, `number` times over."""
        products = collections.Counter({p: number * count for p, count in self.products.items()})
        return Work(products, *(number * value for value in self._numbers()))

    def _numbers(self) -> tuple[int, int, int, int]:
        return self.moved, self.fused, self.transcendental, self.operations

    @property
    def flops(self) -> int:
        """Of all products."""
        return sum(product.flops * count for product, count in self.products.items())


def add_up(parts: Iterable[Work]) -> Work:
    """The sum of several."""
    products: collections.Counter[Product] = collections.Counter()
    numbers = [0, 0, 0, 0]
    for part in parts:
        products.update(part.products)
        numbers = [a + b for a, b in zip(numbers, part._numbers(), strict=True)]
    return Work(products, *numbers)


def _primitives(names: str) -> frozenset[Any]:
    found = {_compat.primitive(name) for name in names.split()}
    return frozenset(found - {None})


FREE = _primitives(
    "reshape broadcast_in_dim squeeze expand_dims iota stop_gradient pvary copy copy_p "
    "convert_element_type slice"
)
TRANSCENDENTAL = _primitives(
    "exp exp2 log log1p expm1 tanh logistic erf erfc erf_inv sin cos tan asin acos atan atan2 "
    "sinh cosh asinh acosh atanh pow cbrt lgamma digamma"
)
COMBINING = _primitives(  # by a small jaxpr, which is not work of its own
    "scatter scatter_add scatter_sub scatter_mul scatter_min scatter_max reduce reduce_window "
    "select_and_scatter"
)
REORDERING = _primitives("transpose rev sort cumsum cumprod cummax cummin cumlogsumexp")


def count_work(jaxpr: Any) -> Work:
    """The work of a jaxpr, with scans multiplied out.

    The branch of a `cond` with the most flops counts; the body of a `while` counts once.

    >>> import jax, jax.numpy as jnp
    >>> layer = jax.make_jaxpr(lambda x, w: jnp.tanh(x @ w))
    >>> work = count_work(layer(jnp.ones((2, 3)), jnp.ones((3, 5))))
    >>> work.flops, work.transcendental, work.operations
    (60, 10, 2)
    """
    inner, _ = _compat.split_closed(jaxpr)
    return add_up(_equation_work(eqn) for eqn in inner.eqns)


def _equation_work(eqn: Any) -> Work:
    bodies = () if eqn.primitive in COMBINING else _compat.inner_jaxprs(eqn)
    inner = [count_work(body) for body in bodies]
    if inner and eqn.primitive is prims.cond_p:
        return max(inner, key=lambda work: work.flops)
    if inner:
        return add_up(inner).times(_length(eqn))
    return _own_work(eqn)


def _own_work(eqn: Any) -> Work:
    """Of an equation without a body."""
    if eqn.primitive in FREE:
        return Work()
    if flops := product_flops(eqn):
        return Work(collections.Counter([_product(eqn, flops)]), operations=1)
    made = sum(_nbytes(var.aval) for var in eqn.outvars)
    if eqn.primitive in TRANSCENDENTAL:
        elements = sum(math.prod(var.aval.shape) for var in eqn.outvars)
        return Work(fused=made, transcendental=elements, operations=1)
    if _is_elementwise(eqn):
        return Work(fused=made, operations=1)
    read = sum(_nbytes(var.aval) for var in eqn.invars)
    window = math.prod(eqn.params.get("window_dimensions", ()))  # each element is read so often
    return Work(moved=made + window * read, operations=1)


def _length(eqn: Any) -> int:
    return int(eqn.params.get("length", 1)) if eqn.primitive is prims.scan_p else 1


def _product(eqn: Any, flops: int) -> Product:
    left, right = (var.aval for var in eqn.invars[:2])
    nbytes = sum(_nbytes(var.aval) for var in (*eqn.invars, *eqn.outvars))
    itemsize = min(np.dtype(x.dtype).itemsize for x in (left, right))
    if eqn.primitive is prims.dot_general_p:
        _, (batched, _) = eqn.params["dimension_numbers"]
        return Product("batched" if batched else "product", flops, nbytes, itemsize)
    spatial = eqn.params["dimension_numbers"].out_spec[2:]
    pixels = math.prod(eqn.outvars[0].aval.shape[i] for i in spatial)
    return Product("convolution", flops, nbytes, itemsize, pixels)


def _is_elementwise(eqn: Any) -> bool:
    """Whether each element of the result is made from the same element of the operands."""
    if eqn.primitive in REORDERING:
        return False
    shape = getattr(eqn.outvars[0].aval, "shape", None) if eqn.outvars else None
    return all(getattr(v.aval, "shape", None) in ((), shape) for v in eqn.invars)


def _nbytes(aval: Any) -> int:
    """Bytes of an array; 0 for a token or a key, which have no such dtype."""
    try:
        return math.prod(aval.shape) * np.dtype(aval.dtype).itemsize
    except (AttributeError, TypeError):
        return 0
