"""Norms: terms of the blocks, computed where their arrays are, and added up over devices once.

A device that holds a part of a weight's rows or columns knows that part of every squared norm. All such
parts are added up on the device first, then over devices by one sum of B numbers (an estimate and an
upper bound) for each set of axes of the mesh. Upper bounds stay upper bounds: each addition is paid for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bk_jax.ops.numerics import SquaredNorms, accumulation_dtype, inflate
from bk_jax.sharding.partition import Axes, Rule, Shards, partitioned


class Part(NamedTuple):
    """Squared norms of a device's part; those of the parts of `factors` add up to the whole."""

    norms: SquaredNorms
    factors: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Term:
    """Squared norms `[B]` of some gradients, as a function of arrays.

    Attributes:
      parts: from shards and operands to parts, which add up to the term.
      operands: arrays of the batch.
      labels: factors of their axes as for `partition.Rule`; `b` are the examples.
      whole: factors whose positions are needed together.
      scope: a name for the program.
      group: number of the clip group.
      axes: of a `shard_map` whose devices hold parts of these gradients.
    """

    parts: Callable[..., list[Part]]
    operands: Sequence[jax.Array]
    labels: tuple[str, ...]
    whole: frozenset[str] = frozenset()
    scope: str = ""
    group: int = 0
    axes: Axes = ()


def squared_norms(terms: Sequence[Term]) -> list[SquaredNorms]:
    """One for each term. Where parts are added up over devices, the first term of a group has it all."""
    if not terms:
        return []
    ends = [0]
    for term in terms:
        ends.append(ends[-1] + len(term.operands))

    def compute(shards: Shards, *operands: jax.Array) -> tuple[jax.Array, ...]:
        found = [
            _evaluate(
                term, _of_term(shards, term, number), operands[ends[number] : ends[number + 1]]
            )
            for number, term in enumerate(terms)
        ]
        norms = _over_devices([term.group for term in terms], found)
        return tuple(number for pair in norms for number in pair)

    operands = [operand for term in terms for operand in term.operands]
    flat = partitioned(compute, _rule(terms), *operands)
    return [SquaredNorms(*pair) for pair in zip(flat[::2], flat[1::2], strict=True)]


def add_up(shards: Shards, norms: SquaredNorms, factors: Iterable[str]) -> SquaredNorms:
    """The parts of all devices, added up; estimates and bounds in one sum."""
    axes = shards.over(*factors)
    return _psum(axes, [norms])[0] if axes else norms


_Found = dict[Axes, SquaredNorms]  # parts of a term, by the axes over which they are to be added up


def _evaluate(term: Term, shards: Shards, operands: Sequence[jax.Array]) -> _Found:
    with jax.named_scope(term.scope or "bk.norm"):
        by_axes: dict[Axes, list[SquaredNorms]] = {}
        for norms, factors in term.parts(shards, *operands):
            axes = tuple(sorted({*shards.over(*factors), *term.axes}))
            by_axes.setdefault(axes, []).append(norms)
        return {axes: _add(norms) for axes, norms in by_axes.items()}


def _add(norms: Sequence[SquaredNorms]) -> SquaredNorms:
    """A sum of squared norms; the bound covers its roundings."""
    if len(norms) == 1:
        return norms[0]
    dtype = accumulation_dtype(*(n.upper.dtype for n in norms))
    estimate, upper = (
        sum((part.astype(dtype) for part in parts[1:]), parts[0].astype(dtype))
        for parts in zip(*norms, strict=True)
    )
    return SquaredNorms(estimate, inflate(upper, len(norms)))


def _over_devices(groups: Sequence[int], found: Sequence[_Found]) -> list[SquaredNorms]:
    """Adds up parts: all terms of a clip group with the same axes together."""
    kept: list[list[SquaredNorms]] = [[f[()]] if () in f else [] for f in found]
    for axes in sorted({axes for f in found for axes in f if axes}):
        mine: dict[int, list[int]] = {}
        for number, (group, f) in enumerate(zip(groups, found, strict=True)):
            if axes in f:
                mine.setdefault(group, []).append(number)
        local = [_add([found[n][axes] for n in numbers]) for numbers in mine.values()]
        with jax.named_scope("bk.norm"):
            totals = _psum(axes, local)
        for numbers, total in zip(mine.values(), totals, strict=True):
            kept[numbers[0]].append(total)
    dtype = accumulation_dtype(*(n.upper.dtype for norms in kept for n in norms))
    batch = next(n.upper.shape for norms in kept for n in norms)
    zero = SquaredNorms(jnp.zeros(batch, dtype), jnp.zeros(batch, dtype))
    return [_cast(_add(norms) if norms else zero, dtype) for norms in kept]


def _cast(norms: SquaredNorms, dtype: jnp.dtype) -> SquaredNorms:
    return SquaredNorms(norms.estimate.astype(dtype), norms.upper.astype(dtype))


def _psum(axes: Axes, norms: Sequence[SquaredNorms]) -> list[SquaredNorms]:
    """One sum over devices for all of them."""
    dtype = accumulation_dtype(*(n.upper.dtype for n in norms))
    stacked = jnp.stack([part.astype(dtype) for n in norms for part in n])
    total = jax.lax.psum(stacked, axes)
    count = jax.lax.psum(1, axes)  # a constant: how many there are
    return [
        SquaredNorms(total[i], inflate(total[i + 1], count)) for i in range(0, 2 * len(norms), 2)
    ]


def _name(factor: str, number: int) -> str:
    """Factors of different terms are different, but for the examples."""
    return factor if factor == "b" else f"{factor}_{number}"


def _rule(terms: Sequence[Term]) -> Rule:
    operands, apart, whole = [], [], set()
    for number, term in enumerate(terms):
        names = [[_name(f, number) for f in labels.split()] for labels in term.labels]
        operands += [" ".join(factors) for factors in names]
        apart.append(frozenset(f for factors in names for f in factors if f != "b"))
        whole |= {_name(factor, number) for factor in term.whole}
    results = ("b",) * (2 * len(terms))
    return Rule(tuple(operands), results, frozenset(whole), exchange="b", apart=tuple(apart))


def _of_term(shards: Shards, term: Term, number: int) -> Shards:
    """The shards with the names of a term."""
    factors = {factor for labels in term.labels for factor in labels.split()}
    axes = {factor: shards.over(_name(factor, number)) for factor in factors}
    return Shards(axes, shards.sizes)
