"""The flow: loss -> book -> norms -> clip -> sums, for one batch of examples.

    loss_fn -> trace -> sites -> plan -> book (one vjp: a and g of each site)
            -> norms (B squared norms) -> clip (B factors) -> sums

Only taps are differentiated, under one `vmap` of one `vjp`; the parameters are constants, so the
gradients that clipping would throw away are never formed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bk_jax.clip import Clipping
from bk_jax.ops.numerics import SquaredNorms, accumulation_dtype
from bk_jax.planning.plan import Plan
from bk_jax.program.book import evaluate, zero_tap
from bk_jax.program.replay import Book
from bk_jax.program.trace import Traced
from bk_jax.sharding.manual import NOT_MANUAL, Manual
from bk_jax.sharding.varying import vary
from bk_jax.summing import blocks
from bk_jax.summing.blocks import Kept
from bk_jax.summing.norms import Term, squared_norms


class ClippedSum(NamedTuple):
    """Clipped sums per trainable leaf, and what is known per example (leading axis B)."""

    sums: list[jax.Array]
    losses: jax.Array
    aux: list[jax.Array]
    norms: jax.Array  # [B, groups], estimates
    factors: jax.Array  # [B, groups]


class Task(NamedTuple):
    """What is to be done, the same for every batch."""

    traced: Traced
    plan: Plan
    clipping: Clipping
    second_backward: bool
    arrays: Sequence[jax.Array]  # the trainable parameters
    manual: Manual = NOT_MANUAL  # inside a shard_map


class _Pass(NamedTuple):
    """What one back-propagation gives: values per example, and what is kept of each gradient."""

    losses: jax.Array
    aux: list[jax.Array]
    kept: list[Kept]
    leaf_gradients: dict[int, jax.Array]


def clipped_sum(task: Task, examples: Sequence[jax.Array], is_padding: jax.Array) -> ClippedSum:
    """The sum of clipped gradients over a batch; `examples` are the example arrays, batched."""
    first = _back_propagate(task, examples, None)
    factors, norms = _clip(task, first, is_padding)
    sums: dict[int, jax.Array] = {}
    for group in range(len(task.clipping.norms)):
        factor = factors[:, group]
        if task.second_backward:
            power, rest = _split_power(factor)
            again = _back_propagate(task, examples, power)
            _add_sums(task, again, group, rest, sums)
        else:
            _add_sums(task, first, group, factor, sums)
    for leaf in task.plan.unused:
        array = task.arrays[leaf]
        zeros = jnp.zeros(array.shape, accumulation_dtype(array.dtype))
        sums[leaf] = task.manual.vary(zeros, array)
    ordered = [sums[leaf] for leaf in range(task.traced.num_leaves)]
    return ClippedSum(ordered, first.losses, first.aux, norms, factors)


def _split_power(factor: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A factor as a power of two, not above 1 and within reach of half precision, times a rest.

    Back-propagation is linear, and scaling by a power of two rounds nothing even in half precision:
    a second pass weighted by the power alone has the norms of the first one, to the last bit.
    """
    _, exponent = jnp.frexp(factor)
    power = jnp.ldexp(jnp.ones_like(factor), jnp.clip(exponent - 1, -8, 0))
    return power, factor / power


def _back_propagate(task: Task, examples: Sequence[jax.Array], weights: jax.Array | None) -> _Pass:
    """One forward and backward pass; each example's loss is multiplied by its weight, if given."""
    sites, plan = task.plan.sites(), task.plan

    def one_example(weight: jax.Array | None, *example: jax.Array) -> Any:
        def loss(taps: Any, leaf_taps: dict[int, jax.Array]) -> Any:
            leaves = list(task.arrays)
            for leaf, tap in leaf_taps.items():
                leaves[leaf] = leaves[leaf] + tap
            (value, *aux), book = evaluate(task.traced.jaxpr, [*leaves, *example], taps, sites)
            return value, (aux, book)

        taps = {path: vary(zero_tap(site), site.varying) for path, site in sites.items()}
        leaf_taps = {
            leaf: task.manual.vary(jnp.zeros_like(task.arrays[leaf]), task.arrays[leaf])
            for leaf in plan.tapped
        }
        value, pullback, (aux, book) = jax.vjp(loss, taps, leaf_taps, has_aux=True)
        seed = jnp.ones_like(value) if weight is None else weight.astype(value.dtype)
        return value, aux, book, pullback(seed)

    over = (None if weights is None else 0, *[0] * len(examples))
    batched = jax.vmap(one_example, in_axes=over)
    losses, aux, book, (taps, leaf_gradients) = batched(weights, *examples)
    return _Pass(losses, aux, _keep(task, book, taps), leaf_gradients)


def _scope_name(task: Task, step: str, leaves: Iterable[int]) -> str:
    """Names what is computed for some parameters: `bk-hlo` reads it from the compiled program."""
    paths = ",".join(task.traced.leaves[leaf].path for leaf in dict.fromkeys(leaves))
    return f"bk.{step}[{paths}]"


def _scope(task: Task, step: str, leaves: Iterable[int]) -> AbstractContextManager[None]:
    return jax.named_scope(_scope_name(task, step, leaves))


def _keep(task: Task, book: Book, taps: Any) -> list[Kept]:
    kept = []
    for block in task.plan.blocks:
        with _scope(task, "keep", block.leaves):
            kept.append(blocks.keep(block, book, taps))
    return kept


def _clip(task: Task, first: _Pass, is_padding: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Factors and norm estimates, both `[B, groups]`."""
    parts = _norms(task, first)
    with jax.named_scope("bk.clip"):
        return _factors(task, parts, is_padding)


def _norms(task: Task, first: _Pass) -> list[list[SquaredNorms]]:
    """The squared norms that make up each group's."""
    terms = [_term(task, first, numbers) for numbers in task.plan.norm_calls]
    for leaf, gradients in first.leaf_gradients.items():
        own = blocks.norms_of(gradients)
        terms.append(_named(task, own, [leaf]))
    parts: list[list[SquaredNorms]] = [[] for _ in task.clipping.norms]
    for term, norms in zip(terms, squared_norms(terms), strict=True):
        parts[term.group].append(norms)
    return parts


def _term(task: Task, first: _Pass, numbers: Sequence[int]) -> Term:
    """The norms of blocks that are taken together."""
    together = [leaf for number in numbers for leaf in task.plan.blocks[number].leaves]
    with _scope(task, "norm", together):
        term = blocks.norms([first.kept[number] for number in numbers])
    return _named(task, term, together)


def _named(task: Task, term: Term, leaves: Sequence[int]) -> Term:
    """The term with all that depends on the parameters it is for."""
    return dataclasses.replace(
        term,
        scope=_scope_name(task, "norm", leaves),
        group=task.plan.groups[leaves[0]],
        axes=task.manual.parts(task.arrays[leaves[0]]),
    )


def _factors(
    task: Task, parts: list[list[SquaredNorms]], is_padding: jax.Array
) -> tuple[jax.Array, jax.Array]:
    dtype = accumulation_dtype(*(n.upper.dtype for norms in parts for n in norms))
    zero = jnp.zeros(is_padding.shape, dtype)
    factors, estimates = [], []
    for group, terms in enumerate(parts):
        uppers = [n.upper.astype(dtype) for n in terms] or [zero]
        factors.append(task.clipping.factors(uppers, group, is_padding))
        estimates.append(jnp.sqrt(sum((n.estimate.astype(dtype) for n in terms), zero)))
    norms_of_all = jnp.stack(estimates, axis=1)
    usable = jnp.all(jnp.isfinite(norms_of_all), axis=1, keepdims=True)
    return jnp.where(usable, jnp.stack(factors, axis=1), 0), norms_of_all


def _add_sums(
    task: Task, given: _Pass, group: int, factor: jax.Array, sums: dict[int, jax.Array]
) -> None:
    """Adds the clipped sums of one group's parameters to `sums`."""
    for block, kept in zip(task.plan.blocks, given.kept, strict=True):
        if block.group == group:
            with _scope(task, "sum", block.leaves):
                clipped = kept.clipped_sum(factor)
            for leaf, part in clipped.items():
                sums[leaf] = sums[leaf] + part if leaf in sums else part
    for leaf, gradients in given.leaf_gradients.items():
        if task.plan.groups[leaf] == group:
            with _scope(task, "sum", [leaf]):
                sums[leaf] = blocks.weighted_sum(factor, gradients)
