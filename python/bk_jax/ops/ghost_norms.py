"""Ghost norms: the squared norms of many dense layers of one shape, in one call on a GPU.

One layer has too few tiles to fill a GPU, and its norm takes several launches. A network repeats its
layers, so their norms come together. On a CPU this is a call of `ghost_norm` for each of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeVar

import jax

from bk_jax import _native
from bk_jax.ops import _border
from bk_jax.ops.ghost_norm import ghost_norm
from bk_jax.ops.numerics import (
    SquaredNorms,
    accumulation_dtype,
    common_dtype,
    sum_of_norms,
)

MOST = 32  # layers of a call: kernels have a table of that many
Pair = tuple[jax.Array, jax.Array]
Item = TypeVar("Item")


def ghost_norms(layers: Sequence[Pair]) -> SquaredNorms:
    """Squared norms `[B]` of the gradients of dense layers, added up.

    Args:
      layers: activations `[B, N, T, d]` and output gradients `[B, N, T, p]` of each; all alike.

    >>> import jax.numpy as jnp
    >>> a, g = jnp.asarray([[[[1.0, 2.0]]]]), jnp.asarray([[[[3.0]]]])
    >>> print(ghost_norms([(a, g), (2 * a, g)]).estimate)
    [225.]
    """
    check_alike("ghost_norms", layers)
    return sum_of_norms([_of_call(part) for part in even_parts(layers, MOST)])


def _of_call(layers: Sequence[Pair]) -> SquaredNorms:
    if len(layers) == 1:
        return ghost_norm(*layers[0])
    dtype = common_dtype(*(x.dtype for x in layers[0]))
    operands = [x.astype(dtype) for layer in layers for x in layer]
    out = jax.ShapeDtypeStruct((operands[0].shape[0],), accumulation_dtype(dtype))
    numbered = dict(enumerate(operands))
    norms = _native.call(
        "bk_ghost_norms", ghost_norms_twin, [out, out], *operands,
        shapes=_border.rows(numbered), padded=_border.padded(numbered, [out, out]),
    )  # fmt: skip
    return SquaredNorms(*norms)


def ghost_norms_twin(*operands: jax.Array) -> SquaredNorms:
    """The same as a call for each layer: `a_1, g_1, a_2, g_2, ...`."""
    pairs = zip(operands[::2], operands[1::2], strict=True)
    return sum_of_norms([ghost_norm(a, g) for a, g in pairs])


def check_alike(name: str, layers: Sequence[Pair]) -> None:
    """Layers of one call have operands of the same shapes and dtypes."""
    found = {tuple((x.shape, x.dtype) for x in layer) for layer in layers}
    if len(found) != 1:
        said = "; ".join(
            sorted(" and ".join(f"{dtype}{list(shape)}" for shape, dtype in one) for one in found)
        )
        raise ValueError(
            f"{name} expects one or more layers whose operands have the same shapes and dtypes; got "
            f"{said or 'none'}. Call it once for each kind of layer."
        )
    (first, last) = layers[0]
    if first.ndim != 4 or last.ndim != 4 or first.shape[:3] != last.shape[:3]:
        raise ValueError(
            f"{name} expects operands [B, N, T, M] and [B, N, T, K] with equal B, N and T; got "
            f"{first.shape} and {last.shape}."
        )


def even_parts(items: Sequence[Item], most: int) -> list[Sequence[Item]]:
    """As few parts as possible with at most so many each, and none much smaller than another.

    >>> even_parts(range(7), 3)
    [range(0, 2), range(2, 4), range(4, 7)]
    """
    count = -(-len(items) // most)
    ends = [len(items) * k // count for k in range(count + 1)]
    return [items[begin:end] for begin, end in itertools.pairwise(ends)]
