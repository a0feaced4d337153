"""Partition: the arithmetic of blocks split over a mesh, each device working on the part it has.

XLA does not know what our custom calls compute, so it would gather their operands on every device.
A `Rule` names each axis of operands and results with a *label*, as in an einsum:

    operands  "b n t d", "b", "b n t p"        results  "n d p"

Labels that the results lack are summed over, and then a device adds only its part: `Shards.sum`
adds the parts of all devices, scattered at once where the result is wanted in pieces (FSDP).

| label of a rule | split over the mesh |
|---|---|
| any | as the operands are, otherwise as the result is wanted |
| one of `whole` | never: its positions interact. A split there is exchanged for whole examples |

One mesh axis splits one label. If it split two, a device would see only the diagonal of their
product: with `a` split along d and `g` along p by the same devices, `||a^T g||^2` is not the sum of
the parts.

`jit` with shardings does this through `custom_partitioning`; with one device nothing is added to
the program. Under `shard_map` a function already sees its own part, see `bk_jax.sharding.manual`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

Axes = tuple[str, ...]  # of the mesh


@dataclasses.dataclass(frozen=True)
class Rule:
    """Labels of every axis; see the module's docstring.

    Attributes:
      operands: one string for each operand, such as `"b n t d"`.
      results: one string for each result.
      whole: labels that are not split.
      scatters: whether the function sums its results with `Shards.sum`, which can scatter them.
      exchange: the label that takes over what splits a whole one: examples for positions, an
        all-to-all.
      apart: groups of labels that the same mesh axis may split, because no two groups meet in one
        sum (parts of several layers). Labels in no group meet with all.
    """

    operands: tuple[str, ...]
    results: tuple[str, ...]
    whole: frozenset[str] = frozenset()
    scatters: bool = False
    exchange: str = ""
    apart: tuple[frozenset[str], ...] = ()

    def text(self) -> str:
        """As XLA's partitioner reads it."""
        return f"{', '.join(self.operands)} -> {', '.join(self.results)}"

    @functools.cached_property
    def group_of(self) -> dict[str, int]:
        """The number of a label's group in `apart`; two of one group, or without, meet in a sum."""
        return {label: number for number, group in enumerate(self.apart) for label in group}


@dataclasses.dataclass(frozen=True)
class Shards:
    """How this device's part lies in the whole; without arguments it is the whole."""

    axes: Mapping[str, Axes] = dataclasses.field(default_factory=dict)  # by label
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)  # of the mesh
    scattered: tuple[
        tuple[Axes, ...], ...
    ] = ()  # axes of each result's dimensions, to be cut at last

    def over(self, *labels: str) -> Axes:
        """The mesh axes that split these labels."""
        return tuple(axis for label in labels for axis in self.axes.get(label, ()))

    def count(self, *labels: str) -> int:
        """Into how many parts they are split."""
        return math.prod(self.sizes[axis] for axis in self.over(*labels))

    def start(self, label: str, length: int) -> Any:
        """Where this device's part of a label begins, for parts of `length`; 0 if it is whole."""
        axes = self.over(label)
        return jax.lax.axis_index(axes).astype(jnp.int32) * length if axes else 0

    def sum(self, value: jax.Array, *labels: str, result: int = 0) -> jax.Array:
        """Adds up what the devices that share these labels have, for result number `result`.

        If the result is wanted in pieces by devices that all have the same sum, each takes its own.
        """
        axes = self.over(*labels)
        for dim, wanted in enumerate(self.scattered[result] if self.scattered else ()):
            parts = [wanted] if set(wanted) <= set(axes) else [(axis,) for axis in wanted]
            for part in filter(None, parts):
                if set(part) <= set(axes):
                    value = jax.lax.psum_scatter(value, part, scatter_dimension=dim, tiled=True)
                else:
                    value = self._piece(value, part, dim)
            axes = tuple(axis for axis in axes if axis not in wanted)
        return jax.lax.psum(value, axes) if axes else value

    def _piece(self, value: jax.Array, axes: Axes, dim: int) -> jax.Array:
        """This device's piece of an array that all devices along the axes have."""
        length = value.shape[dim] // math.prod(self.sizes[axis] for axis in axes)
        start = jax.lax.axis_index(axes) * length
        return jax.lax.dynamic_slice_in_dim(value, start, length, dim)


Local = Callable[..., tuple[jax.Array, ...]]
WHOLE = Shards()


def sharded(rule_of: Callable[..., Rule]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An operation of which each device does its part.

    The decorated function is `local(shards, *operands, **static)`: the arithmetic of one device,
    which is all of it on a single device. `rule_of(*operands, **static)` says how operands may be
    split.

        @sharded(lambda x, y: Rule(("b k", "b k"), ("k",), scatters=True))
        def sum_of_products(shards, x, y):
            return shards.sum((x * y).sum(0), "b")

        sum_of_products(x, y)
    """

    def decorate(local: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(local)
        def operation(*operands: jax.Array, **static: Any) -> Any:
            mine = functools.partial(local, **static)
            if not is_cut():
                return mine(WHOLE, *operands)
            rule = rule_of(*operands, **static)
            found = partitioned(lambda *given: _as_tuple(mine(*given)), rule, *operands)
            return found if len(rule.results) > 1 else found[0]

        return operation

    return decorate


def _as_tuple(results: Any) -> tuple[jax.Array, ...]:
    return tuple(results) if isinstance(results, tuple) else (results,)


def partitioned(function: Local, rule: Rule, *operands: jax.Array) -> tuple[jax.Array, ...]:
    """`function(shards, *operands)`, each device with its own part of the operands.

    The function must not close over traced values.
    """
    if not is_cut():
        return function(WHOLE, *operands)
    if (mesh := jax.sharding.get_abstract_mesh()).explicit_axes:
        return _by_types(function, rule, mesh, operands)

    @jax.jit  # keeps constants inside
    def whole(*operands: jax.Array) -> tuple[jax.Array, ...]:
        return function(WHOLE, *operands)

    def partition(mesh: Any, arguments: Any, results: Any) -> tuple[Any, ...]:
        return _partition(function, rule, mesh, arguments, results)

    call = custom_partitioning(whole)
    call.def_partition(partition, sharding_rule=rule.text())
    # It has no vmap rule; a user's own vmap runs one after the other, as the calls themselves do.
    return tuple(jax.custom_batching.sequential_vmap(call)(*operands))


def many_devices() -> bool:
    """Whether arrays may be spread over devices at all: those here, or those of `jax.set_mesh`."""
    return jax.device_count() > 1 or jax.sharding.get_abstract_mesh().size > 1


def is_cut() -> bool:
    """Whether XLA decides who computes what: several devices, and not inside a `shard_map`."""
    return many_devices() and not jax.sharding.get_abstract_mesh().manual_axes


def _by_types(
    function: Local, rule: Rule, mesh: Any, operands: Sequence[jax.Array]
) -> tuple[jax.Array, ...]:
    """On a mesh with explicit axes, the types of the operands say how they are split."""
    shapes = jax.eval_shape(functools.partial(function, WHOLE), *(_bare(x) for x in operands))
    wanted = [jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=_sharding(mesh, [])) for s in shapes]
    _, local, outs, ins = _partition(
        function, rule, mesh, [jax.typeof(x) for x in operands], wanted
    )
    moved = [jax.sharding.reshard(x, to) for x, to in zip(operands, ins, strict=True)]
    mapped = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=tuple(to.spec for to in ins),
        out_specs=tuple(to.spec for to in outs),
        check_vma=False,
    )
    return tuple(mapped(*moved))


def _bare(x: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _partition(
    function: Local, rule: Rule, mesh: Any, arguments: Sequence[Any], results: Sequence[Any]
) -> tuple[Any, ...]:
    """What `custom_partitioning` asks for: mesh, the part of one device, and all shardings."""
    inside = [labels.split() for labels in rule.operands]
    outside = [labels.split() for labels in rule.results]
    sizes = dict(mesh.shape)
    axes = _assign(
        rule, sizes, [*zip(inside, arguments, strict=True)], [*zip(outside, results, strict=True)]
    )
    cut = [[axes.get(label, ()) for label in labels] for labels in outside]
    kept = {axis for labels in outside for label in labels for axis in axes.get(label, ())}
    summed = {a for label, own in axes.items() for a in own if a not in kept}
    summed = summed if rule.scatters else set()
    scattered = [
        _scatter(result, wanted, summed, sizes) for result, wanted in zip(cut, results, strict=True)
    ]
    shards = Shards(axes, sizes, tuple(scattered))
    return (
        mesh,
        functools.partial(function, shards),
        tuple(
            _sharding(mesh, [(*own, *extra) for own, extra in zip(first, last, strict=True)])
            for first, last in zip(cut, scattered, strict=True)
        ),
        tuple(_sharding(mesh, [axes.get(f, ()) for f in labels]) for labels in inside),
    )


def _assign(rule: Rule, sizes: Mapping[str, int], operands: Any, results: Any) -> dict[str, Axes]:
    """The mesh axes that split each label: examples first, because they stay where they are.

    Then as the operands are, large ones first, then as results are wanted.
    """
    axes: dict[str, Axes] = {}
    lengths: dict[str, int] = {}
    used: dict[int | None, set[str]] = {}  # axes of the mesh, by group of labels
    first = sorted(operands, key=lambda pair: -math.prod(pair[1].shape))
    dims = [
        (label, length, own)
        for labels, array in [*first, *results]
        for label, length, own in zip(labels, array.shape, _spec(array), strict=True)
    ]
    for label, length, own in sorted(dims, key=lambda dim: dim[0] != "b"):
        lengths[label] = length
        group = rule.group_of.get(label)
        met = used if group is None else (None, group)
        free = tuple(axis for axis in own if not any(axis in used.get(g, ()) for g in met))
        if label not in axes and label not in rule.whole and free and _fits(length, free, sizes):
            axes[label] = free
            used.setdefault(group, set()).update(free)
    if rule.exchange:
        taken = {axis for own in axes.values() for axis in own}
        idle = [axis for label, _, own in dims if label in rule.whole for axis in own]
        more = (*axes.get(rule.exchange, ()), *(a for a in dict.fromkeys(idle) if a not in taken))
        if more and _fits(lengths[rule.exchange], more, sizes):
            axes[rule.exchange] = more
    return axes


def _fits(length: int, axes: Axes, sizes: Mapping[str, int]) -> bool:
    """Whether all parts have the same size."""
    return length % math.prod(sizes[axis] for axis in axes) == 0


def _scatter(
    cut: Sequence[Axes], wanted: Any, summed: set[str], sizes: Mapping[str, int]
) -> tuple[Axes, ...]:
    """Axes over which a sum may be scattered, because the result is wanted in these pieces."""
    out = []
    for own, asked, length in zip(cut, _spec(wanted), wanted.shape, strict=True):
        extra = asked[len(own) :] if asked[: len(own)] == own else ()
        good = extra and set(extra) <= summed and _fits(length, asked, sizes)
        out.append(extra if good else ())
    return tuple(out)


def _spec(array: Any) -> list[Axes]:
    """The mesh axes that split each dimension."""
    spec = getattr(array.sharding, "spec", ())
    entries = [() if e is None else (e,) if isinstance(e, str) else tuple(e) for e in spec]
    return [*entries, *[()] * (len(array.shape) - len(entries))]


def _sharding(mesh: Any, dims: Sequence[Axes]) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(*(axes or None for axes in dims)))
