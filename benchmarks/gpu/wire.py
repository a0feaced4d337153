"""What a device sends in a step, inside a host and between hosts, read off a compiled program.

Collectives go around in rings: a device of a ring of `n` sends each array, or the part of it that is its
own, on to the next one. Loops count as often as they run.
"""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bk_jax import hlo
from bk_jax.hlo.collectives import find_collectives
from bk_jax.hlo.stacks import runs

HOST = 8  # GPUs that are joined by NVLink
INSIDE, BETWEEN = "inside", "between"
_COLLECTIVE = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = .*?\breplica_groups=(.*)$", re.M)
_PAIRS = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = .*?\bsource_target_pairs=\{([{}\d,]*)\}", re.M)
_LISTED = re.compile(r"\{\{([\d,]+)\}")
_IOTA = re.compile(r"\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(
    r"mesh\[((?:'\w+'=\d+,?)+)\](?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))? \{((?:'\w+',?)+)\}"
)


def ring_bytes(kind: str, result: int, n: int) -> float:
    """What a device of a ring of `n` sends for a collective with a result of so many bytes.

    >>> [ring_bytes(kind, 800, 8) for kind in ("all-gather", "all-reduce", "reduce-scatter")]
    [700.0, 1400.0, 5600.0]
    """
    if kind == "reduce-scatter":
        return float((n - 1) * result)
    times = {"all-reduce": 2 * (n - 1) / n, "collective-permute": 1.0}
    return times.get(kind, (n - 1) / n) * result


def members(text: str) -> tuple[int, ...]:
    """The devices of the first ring, in the three ways that XLA writes them.

    >>> members("{{0,4},{1,5}},"), members("[2,4]<=[8],"), members("[4,2]<=[2,4]T(1,0),")
    ((0, 4), (0, 1, 2, 3), (0, 4))
    >>> members("mesh['axis_0'=4,'axis_1'=2] {'axis_0'}, dimensions={0}")
    (0, 2, 4, 6)
    >>> members("mesh['axis_0'=2,'axis_1'=4], device_ids=([4,2]T(1,0)) {'axis_1'}")
    (0, 2, 4, 6)
    """
    if match := _LISTED.match(text):
        return _numbers(match.group(1))
    if match := _IOTA.match(text):
        _, size, dims, axes = match.groups()
        return tuple(_ordered(dims, axes)[: int(size)].tolist())
    if match := _MESH.match(text):
        sizes, dims, order, axes = match.groups()
        named = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", sizes)}
        ids = _ordered(dims or str(math.prod(named.values())), order)
        return _along(axes, named, ids)
    raise ValueError(
        "the devices of a collective are {{0,1},...}, [groups,size]<=[...] or mesh[...] {axes}, "
        f"got {text[:80]!r}; XLA writes them in a new way: add it to {__name__}."
    )


def _ordered(dims: str, axes: str | None) -> np.ndarray:
    """All devices in the order of a transposed array of them."""
    ids = np.arange(math.prod(_numbers(dims))).reshape(_numbers(dims))
    return (ids.transpose(_numbers(axes)) if axes else ids).ravel()


def _along(axes: str, sizes: Mapping[str, int], ids: np.ndarray) -> tuple[int, ...]:
    """Devices of a mesh that differ along these axes alone, the others at 0."""
    chosen = tuple(slice(None) if f"'{name}'" in axes.split(",") else 0 for name in sizes)
    return tuple(ids.reshape([*sizes.values()])[chosen].ravel().tolist())


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def place(devices: Sequence[int]) -> str:
    """Where a ring runs: inside a host if all of its devices are there.

    >>> place((0, 1, 7)), place((0, 8))
    ('inside', 'between')
    """
    return INSIDE if len({one // HOST for one in devices}) == 1 else BETWEEN


def rings(text: str) -> dict[str, tuple[int, ...]]:
    """By name of a collective, one of its rings; of permutations a pair, if possible between hosts."""
    found = {name: members(groups) for name, groups in _COLLECTIVE.findall(text)}
    for name, listed in _PAIRS.findall(text):
        pairs = [_numbers(pair) for pair in re.findall(r"\d+,\d+", listed)]
        found[name] = max(pairs, key=lambda pair: place(pair) == BETWEEN)
    return found


def _printed(module: hlo.Module, name: str, ring_of: Mapping[str, object]) -> str:
    """The name in the text: of the start, if a collective stands inside of an asynchronous pair."""
    if name in ring_of:
        return name
    (site,) = module.call_sites[module.computation_of[name]]
    return site.name


def sent(compiled: Any) -> dict[str, dict[str, int]]:
    """Bytes that one device sends in a step: `{place: {kind: bytes}}`."""
    (module,) = hlo.load(compiled)
    by_name = {instruction.name: instruction for instruction in module}
    ring_of = rings(compiled.as_text())
    found: dict[str, collections.Counter[str]] = {
        where: collections.Counter() for where in (INSIDE, BETWEEN)
    }
    for one in find_collectives(module):
        ring = ring_of[_printed(module, one.instruction, ring_of)]
        times = runs(module, by_name[one.instruction])
        found[place(ring)][one.kind] += round(ring_bytes(one.kind, one.nbytes, len(ring)) * times)
    return {where: dict(sorted(kinds.items())) for where, kinds in found.items()}
