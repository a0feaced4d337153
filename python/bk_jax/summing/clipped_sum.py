"""The flow: loss -> book -> norms -> clip -> sums, for one batch of examples.

    loss_fn -> trace -> sites -> plan -> book (one vjp: a and g of each site)
            -> norms (B squared norms) -> clip (B factors) -> sums

Only taps are differentiated; the parameters are constants, so the gradients that clipping would throw
away are never formed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bk_jax.clip import Clipping
from bk_jax.ops.after import after
from bk_jax.ops.gaussians import TOGETHER
from bk_jax.ops.numerics import SquaredNorms, accumulation_dtype
from bk_jax.planning.equal import alike
from bk_jax.planning.plan import Plan
from bk_jax.program.backward import Backward
from bk_jax.program.replay import Book
from bk_jax.program.trace import Traced
from bk_jax.scaling import scaled_norms
from bk_jax.sharding.manual import NOT_MANUAL, Manual
from bk_jax.sharding.partition import is_cut
from bk_jax.sharding.varying import vary
from bk_jax.summing.blocks import Kept, Tapped, in_sum_calls, keep, together
from bk_jax.summing.norms import Measured, norms_by_group


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
    in_order: bool = False  # sums one after the other, so that each can be used and freed early
    loss_scale: Any = None  # what losses are multiplied by; the clipping's scales undo it


class _Pass(NamedTuple):
    """What one back-propagation gives: values per example, and what is kept of every gradient."""

    losses: jax.Array
    aux: list[jax.Array]
    blocks: list[Kept]  # one for each block of the plan
    tapped: list[Kept]


def clipped_sum(
    task: Task,
    examples: Sequence[jax.Array],
    is_padding: jax.Array,
    start: Sequence[jax.Array] = (),
) -> ClippedSum:
    """The sum of clipped gradients over a batch.

    Args:
      task: what is to be done.
      examples: the example arrays, batched.
      is_padding: `[B]`.
      start: sums of all leaves that these are added to, in place where that is possible.
    """
    size = is_padding.shape[0]
    first = _back_propagate(task, examples, size)
    factors, norms = _clip(task, first, is_padding)
    sums: dict[int, jax.Array] = dict(enumerate(start))
    for group in range(len(task.clipping.clip_norms)):
        factor = factors[:, group]
        if task.second_backward:
            power, rest = _split_power(factor)
            again = _back_propagate(task, examples, size, power)
            _add_sums(task, again, group, rest, sums)
        else:
            _add_sums(task, first, group, factor, sums)
    for leaf in task.plan.unused:
        if leaf in sums:
            continue
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


def _back_propagate(
    task: Task, examples: Sequence[jax.Array], size: int, weights: jax.Array | None = None
) -> _Pass:
    """One forward and backward pass; each example's loss is multiplied by its weight, if given."""
    backward = Backward(task.traced, task.plan.sites(), tuple(task.plan.tapped))
    found = backward(task.arrays, examples, size, _seeds(task, size, weights))
    blocks = _keep(task, found.book, found.taps)
    return _Pass(found.losses, found.aux, blocks, _tapped(task, found.leaves))


def _seeds(task: Task, size: int, weights: jax.Array | None) -> jax.Array | None:
    """What back-propagation starts from, for each example: weights times the scale of the loss."""
    if task.loss_scale is None:
        return weights
    scale = jnp.asarray(task.loss_scale, jnp.float32)
    spread = vary(jnp.broadcast_to(scale, (size,)), task.manual.examples)
    return spread if weights is None else spread * weights


def _tapped(task: Task, gradients: Mapping[int, jax.Array]) -> list[Kept]:
    """Gradients of tapped leaves; on one device those of a part and a dtype are together."""
    gradients = {i: task.clipping.scaling.each(i, each) for i, each in gradients.items()}
    apart = is_cut() or any(task.manual.parts(array) for array in task.arrays)
    together: dict[Any, list[int]] = {}
    for leaf, each in gradients.items():
        part = task.clipping.parts_of_leaves[leaf]
        together.setdefault((part, each.dtype, leaf if apart else None), []).append(leaf)
    return [
        Tapped(tuple(leaves), tuple(gradients[leaf] for leaf in leaves))
        for leaves in together.values()
    ]


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
            scale = task.clipping.scaling.array_of(block.leaves[0])
            kept.append(keep(block, book, taps, scale))
    return kept


def _clip(task: Task, first: _Pass, is_padding: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Factors and norm estimates, both `[B, groups]`."""
    parts = task.clipping.parts
    by_part = norms_by_group(_measured(task, first), len(parts))
    by_group: list[list[SquaredNorms]] = [[] for _ in task.clipping.clip_norms]
    with jax.named_scope("bk.clip"):
        for part, found in zip(parts, by_part, strict=True):
            by_group[part.group] += [scaled_norms(norms, part.scale) for norms in found]
        return _factors(task, by_group, is_padding)


def _measured(task: Task, first: _Pass) -> list[Measured]:
    """All that has a norm: blocks, those that share activations together, and tapped leaves."""
    calls = [together([first.blocks[n] for n in numbers]) for numbers in task.plan.norm_calls]
    out: dict[int, Measured] = {}
    for call, numbers in enumerate(task.plan.equal_norms):
        leaves = [leaf for n in numbers for leaf in calls[n].leaves]
        shared = call if len(numbers) > 1 else None
        out |= {n: _measured_as(task, calls[n], leaves, shared) for n in numbers}
    tapped = [_measured_as(task, kept, kept.leaves) for kept in first.tapped]
    return [*(out[n] for n in range(len(calls))), *tapped]


def _measured_as(
    task: Task, kept: Kept, leaves: Sequence[int], call: int | None = None
) -> Measured:
    """Under the name of these leaves: those of its call."""
    own = kept.leaves[0]
    part, axes = task.clipping.parts_of_leaves[own], task.manual.parts(task.arrays[own])
    return Measured(kept, part, _scope_name(task, "norm", leaves), axes, call)


def _factors(
    task: Task, by_group: list[list[SquaredNorms]], is_padding: jax.Array
) -> tuple[jax.Array, jax.Array]:
    dtype = accumulation_dtype(*(n.upper.dtype for norms in by_group for n in norms))
    zero = jnp.zeros(is_padding.shape, dtype)
    factors, estimates = [], []
    for group, norms in enumerate(by_group):
        uppers = [n.upper.astype(dtype) for n in norms] or [zero]
        factors.append(task.clipping.factors(uppers, group, is_padding))
        each = (n.estimate.astype(dtype) for n in norms)
        estimates.append(jnp.sqrt(functools.reduce(jax.lax.add, each, zero)))
    norms_of_all = jnp.stack(estimates, axis=1)
    usable = jnp.all(jnp.isfinite(norms_of_all), axis=1, keepdims=True)
    return jnp.where(usable, jnp.stack(factors, axis=1), 0), norms_of_all


def _add_sums(
    task: Task, given: _Pass, group: int, factor: jax.Array, sums: dict[int, jax.Array]
) -> None:
    """Adds the clipped sums of one group's parameters to `sums`."""
    apart = alike([None] * len(given.blocks))
    calls = apart if is_cut() else task.plan.equal_sums
    for kept in [*in_sum_calls(given.blocks, calls), *given.tapped]:
        if task.clipping.groups[kept.leaves[0]] != group:
            continue
        with _scope(task, "sum", kept.leaves):
            found = kept.clipped_sum(factor, sums)
            sums.update(found)
            large = [total for total in found.values() if total.size > TOGETHER]
            if task.in_order and large:
                factor = after(factor, *large)
