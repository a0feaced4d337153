"""Norms: the squared norms of all that is kept, by clip group, added up over devices once.

A device that holds a part of a weight's rows or columns knows that part of every squared norm. All such
parts are added up on the device first, then over devices by one sum of B numbers (an estimate and an
upper bound) for each set of axes of the mesh. Upper bounds stay upper bounds: each addition is paid for.

Layers that the plan takes together have one call for their norms, those whose parts on a device are of
one shape.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from bk_jax import ops
from bk_jax.ops.numerics import SquaredNorms, accumulation_dtype, inflate, sum_of_norms
from bk_jax.sharding.partition import WHOLE, Axes, Rule, Shards, is_cut, partitioned
from bk_jax.summing.kept import Kept, Layer, equal_operands


class Measured(NamedTuple):
    """Something whose norms are asked for.

    Attributes:
      kept: what is kept of its gradient.
      group: number of the clip group, or of a part of one.
      scope: a name for the program.
      axes: of a `shard_map` whose devices hold parts of the gradient.
      call: those of one number may come in one call.
    """

    kept: Kept
    group: int
    scope: str = "bk.norm"
    axes: Axes = ()
    call: int | None = None


def norms_by_group(measured: Sequence[Measured], groups: int) -> list[list[SquaredNorms]]:
    """Squared norms `[B]` that add up to those of each clip group."""
    if is_cut() or any(one.axes for one in measured):
        return _over_devices(measured, groups)
    found: list[list[SquaredNorms]] = [[] for _ in range(groups)]
    for first, norms in _computed(measured):
        found[first.group].append(norms)
    return found


def _computed(measured: Sequence[Measured]) -> Iterator[tuple[Measured, SquaredNorms]]:
    """The first of each call with the norms of all in it, which have their group and axes in common."""
    calls: dict[Any, list[Measured]] = {}
    for number, one in enumerate(measured):
        own = (number,) if one.call is None else (one.call, one.group, one.axes)
        calls.setdefault(own, []).append(one)
    for together in calls.values():
        with jax.named_scope(together[0].scope):
            found = _norms_of([one.kept for one in together])
        yield from ((together[0], norms) for norms in found)


def _norms_of(kept: Sequence[Kept]) -> list[SquaredNorms]:
    """Norms that add up to those of all; several are layers, with a call for those that are alike."""
    if len(kept) == 1:
        return [kept[0].squared_norms()]
    pairs = [cast(Layer, one).pair for one in kept]
    return [ops.ghost_norms([pairs[n] for n in numbers]) for numbers in equal_operands(pairs)]


def add_up(shards: Shards, norms: SquaredNorms, labels: Iterable[str]) -> SquaredNorms:
    """The parts of all devices, added up; estimates and bounds in one sum."""
    axes = shards.over(*labels)
    return _psum(axes, [norms])[0] if axes else norms


_Parts = dict[Axes, dict[int, list[SquaredNorms]]]  # by axes to add up over, and by group


def _over_devices(measured: Sequence[Measured], groups: int) -> list[list[SquaredNorms]]:
    """One total for each clip group that has any."""
    arrays = [array for one in measured for array in one.kept.arrays]
    measured = [one._replace(kept=_shell(one.kept)) for one in measured]
    used = sorted({one.group for one in measured})
    ends = [0, *itertools.accumulate(len(one.kept.arrays) for one in measured)]

    def compute(shards: Shards, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        local: list[Measured] = []
        for number, one in enumerate(measured):
            own = arrays[ends[number] : ends[number + 1]]
            local += _on_device(one, _own_labels(shards, one.kept.cut.labels, number), own)
        parts: _Parts = {}
        for first, norms in _computed(local):
            parts.setdefault(first.axes, {}).setdefault(first.group, []).append(norms)
        totals = _totals(parts)
        return tuple(array for group in used for array in totals[group])

    flat = partitioned(compute, _rule(measured, 2 * len(used)), *arrays) if arrays else ()
    found: list[list[SquaredNorms]] = [[] for _ in range(groups)]
    for group, pair in zip(used, zip(flat[::2], flat[1::2], strict=True), strict=True):
        found[group].append(SquaredNorms(*pair))
    return found


def _shell(kept: Kept) -> Kept:
    """The same with shapes in place of arrays: what devices do must not hold on to traced values."""
    shapes: list[Any] = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in kept.arrays]
    (shell,) = kept.on_device(WHOLE, shapes)
    return shell


def _on_device(one: Measured, shards: Shards, arrays: Sequence[jax.Array]) -> list[Measured]:
    """What a device measures, and the axes over which its squared norms are to be added up."""
    with jax.named_scope(one.scope):
        kept = one.kept.on_device(shards, arrays)
    axes = (tuple(sorted({*shards.over(*mine.cut.parts), *one.axes})) for mine in kept)
    return [one._replace(kept=mine, axes=own) for mine, own in zip(kept, axes, strict=True)]


def _totals(parts: _Parts) -> dict[int, SquaredNorms]:
    """The squared norms of each group: one sum over devices for each set of axes."""
    by_group: dict[int, list[SquaredNorms]] = {}
    for axes, groups in sorted(parts.items()):
        local = [sum_of_norms(norms) for norms in groups.values()]
        with jax.named_scope("bk.norm"):
            whole = _psum(axes, local) if axes else local
        for group, total in zip(groups, whole, strict=True):
            by_group.setdefault(group, []).append(total)
    return {group: sum_of_norms(norms) for group, norms in by_group.items()}


def _psum(axes: Axes, norms: Sequence[SquaredNorms]) -> list[SquaredNorms]:
    """One sum over devices for all of them."""
    dtype = accumulation_dtype(*(n.upper.dtype for n in norms))
    stacked = jnp.stack([part.astype(dtype) for n in norms for part in n])
    total = jax.lax.psum(stacked, axes)
    count = jax.lax.psum(1, axes)  # a constant: how many there are
    return [
        SquaredNorms(total[i], inflate(total[i + 1], count)) for i in range(0, 2 * len(norms), 2)
    ]


def _name(label: str, number: int) -> str:
    """Labels of different arrays are different, except for the examples."""
    return label if label == "b" else f"{label}_{number}"


def _rule(measured: Sequence[Measured], results: int) -> Rule:
    operands, apart, whole = [], [], set()
    for number, one in enumerate(measured):
        cut = one.kept.cut
        names = [[_name(label, number) for label in labels.split()] for labels in cut.labels]
        operands += [" ".join(own) for own in names]
        apart.append(frozenset(label for own in names for label in own if label != "b"))
        whole |= {_name(label, number) for label in cut.whole}
    return Rule(
        tuple(operands), ("b",) * results, frozenset(whole), exchange="b", apart=tuple(apart)
    )


def _own_labels(shards: Shards, labels: Sequence[str], number: int) -> Shards:
    """The shards under the labels of one of those measured."""
    own = {label for of_array in labels for label in of_array.split()}
    return Shards({label: shards.over(_name(label, number)) for label in own}, shards.sizes)
