"""The flow: loss -> book -> norms -> clip -> sums, for one batch of examples.

    loss_fn -> trace -> sites -> plan -> book (one vjp: a and g of each site)
            -> norms (B squared norms) -> clip (B factors) -> sums

Only taps are differentiated, under one `vmap` of one `vjp`; the parameters are constants, so the
gradients that clipping would throw away are never formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bk_jax import blocks, ops
from bk_jax.book import Book, evaluate, zero_tap
from bk_jax.clip import Clipping
from bk_jax.ops.numerics import SquaredNorms, accumulation_dtype
from bk_jax.plan import Plan
from bk_jax.trace import Traced


class ClippedSum(NamedTuple):
    """Clipped sums per trainable leaf, and what is known per example (leading axis B)."""

    sums: list[jax.Array]
    losses: jax.Array
    aux: list[jax.Array]
    norms: jax.Array  # [G, B] estimates
    factors: jax.Array  # [G, B]
    nonfinite: jax.Array  # [B]


class _Tapped(NamedTuple):
    """What one pass gives per example: book, output gradients, gradients of tapped leaves."""

    losses: jax.Array
    aux: list[jax.Array]
    book: Book
    gradients: Any
    leaf_gradients: dict[int, jax.Array]


def clipped_sum(
    traced: Traced,
    plan: Plan,
    clipping: Clipping,
    arrays: Sequence[jax.Array],
    examples: Sequence[jax.Array],
    is_padding: jax.Array,
) -> ClippedSum:
    """The sum of clipped gradients over a batch; `examples` are the example arrays, batched."""
    tapped = _differentiate(traced, plan, arrays, examples)
    kept = [blocks.operands(block, tapped.book, tapped.gradients) for block in plan.blocks]
    norms = [_block_norms(operands) for operands in kept]
    leaf_norms = {i: ops.sum_of_squares(g) for i, g in tapped.leaf_gradients.items()}
    factors, estimates = _clip(plan, clipping, norms, leaf_norms, is_padding)

    sums: dict[int, jax.Array] = {}
    for block, operands in zip(plan.blocks, kept, strict=True):
        total = ops.clipped_gemm(operands.left, factors[block.group], operands.right)
        for leaf, part in blocks.leaf_gradients(block, total).items():
            sums[leaf] = sums[leaf] + part if leaf in sums else part
    for leaf, gradients in tapped.leaf_gradients.items():
        sums[leaf] = ops.weighted_sum(factors[plan.groups[leaf]], gradients)
    for leaf in plan.unused:
        sums[leaf] = jnp.zeros(arrays[leaf].shape, accumulation_dtype(arrays[leaf].dtype))
    nonfinite = ~jnp.all(jnp.isfinite(estimates), axis=0) & ~is_padding
    ordered = [sums[leaf] for leaf in range(traced.num_leaves)]
    return ClippedSum(ordered, tapped.losses, tapped.aux, estimates, factors, nonfinite)


def _differentiate(
    traced: Traced, plan: Plan, arrays: Sequence[jax.Array], examples: Sequence[jax.Array]
) -> _Tapped:
    sites = plan.sites()

    def one_example(*example: jax.Array) -> Any:
        def loss(taps: Any, leaf_taps: dict[int, jax.Array]) -> Any:
            leaves = list(arrays)
            for leaf, tap in leaf_taps.items():
                leaves[leaf] = leaves[leaf] + tap
            (value, *aux), book = evaluate(traced.jaxpr, [*leaves, *example], taps, sites)
            return value, (aux, book)

        taps = {path: zero_tap(site) for path, site in sites.items()}
        leaf_taps = {leaf: jnp.zeros_like(arrays[leaf]) for leaf in plan.tapped}
        value, pullback, (aux, book) = jax.vjp(loss, taps, leaf_taps, has_aux=True)
        gradients, leaf_gradients = pullback(jnp.ones_like(value))
        return _Tapped(value, aux, book, gradients, leaf_gradients)

    return jax.vmap(one_example)(*examples)


def _block_norms(operands: blocks.Operands) -> SquaredNorms:
    return ops.ghost_norm(operands.left, operands.right)


def _clip(
    plan: Plan,
    clipping: Clipping,
    block_norms: Sequence[SquaredNorms],
    leaf_norms: dict[int, SquaredNorms],
    is_padding: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Factors and norm estimates, both `[G, B]`."""
    parts: list[list[SquaredNorms]] = [[] for _ in clipping.norms]
    for block, norms in zip(plan.blocks, block_norms, strict=True):
        parts[block.group].append(norms)
    for leaf, norms in leaf_norms.items():
        parts[plan.groups[leaf]].append(norms)
    factors, estimates = [], []
    for group, norms_of_group in enumerate(parts):
        zero = jnp.zeros(is_padding.shape, _norm_dtype(block_norms, leaf_norms))
        uppers = [norms.upper.astype(zero.dtype) for norms in norms_of_group] or [zero]
        squares = [norms.estimate.astype(zero.dtype) for norms in norms_of_group] or [zero]
        factor, _ = clipping.factors(uppers, group, is_padding)
        factors.append(factor)
        estimates.append(jnp.sqrt(sum(squares[1:], squares[0])))
    return jnp.stack(factors), jnp.stack(estimates)


def _norm_dtype(
    block_norms: Sequence[SquaredNorms], leaf_norms: dict[int, SquaredNorms]
) -> Any:
    norms = [*block_norms, *leaf_norms.values()]
    return accumulation_dtype(*(n.upper.dtype for n in norms)) if norms else jnp.float32
