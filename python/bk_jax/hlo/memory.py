"""Memory of a compiled program: XLA's buffer assignment, serialized or as the text of a dump.

Values that lie at the same place of the same allocation share their memory: the largest stands for all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from bk_jax.hlo.model import Buffer, Memory, Place
from bk_jax.hlo.wire import fields, integers, message, number

_ALLOCATION = re.compile(r"^allocation \d+: size (\d+)(.*)$")
_VALUE = re.compile(
    r"^ value: <\d+ ([^\s{]+)(?:\{([\d,]*)\})?[^@]*@\d+> \(size=(\d+),offset=(\d+)\)"
)


_KINDS = ("thread-local", "constant", "argument", "output")  # the first that fits; else temporary


class _Allocation(NamedTuple):
    kind: str
    size: int
    assigned: list[tuple[int, int]]  # logical buffer and offset


class _Value(NamedTuple):
    instruction: str
    path: tuple[int, ...]  # to an element of a tuple
    nbytes: int


def read_assignment(data: bytes, names: Mapping[int, str], peak: int | None = None) -> Memory:
    """From a serialized `BufferAssignmentProto`; `names` are instructions by number."""
    values: dict[int, _Value] = {}
    allocations: list[_Allocation] = []
    for key, value in fields(data):
        if key == 1:
            ident, logical = _logical_buffer(message(value), names)
            values[ident] = logical
        elif key == 3:
            allocations.append(_allocation(message(value)))
    placed = [
        (place, allocation.kind, offset, values[ident])
        for place, allocation in enumerate(allocations)
        for ident, offset in allocation.assigned
        if ident in values
    ]
    return _memory(((a.kind, a.size) for a in allocations), peak, placed)


def _logical_buffer(data: bytes, names: Mapping[int, str]) -> tuple[int, _Value]:
    found = dict(fields(data))
    owner, index = 0, []
    for key, value in fields(message(found.get(3, b""))):
        if key == 4:
            owner = number(value)
        elif key == 3:
            index += integers(value)
    name = names.get(owner, f"#{owner}")
    return number(found.get(1, 0)), _Value(name, tuple(index), number(found.get(2, 0)))


def _allocation(data: bytes) -> _Allocation:
    size, flags, assigned = 0, set(), []
    for key, value in fields(data):
        if key == 9:
            place = dict(fields(message(value)))
            assigned.append((number(place.get(1, 0)), number(place.get(2, 0))))
        elif key == 2:
            size = number(value)
        elif key in _FLAGS and value:
            flags.add(_FLAGS[key])
    kind = next((kind for kind in _KINDS if kind in flags), "temporary")
    return _Allocation(kind, size, assigned)


_FLAGS = {3: "thread-local", 5: "argument", 7: "output", 12: "constant"}


def read_assignment_text(text: str) -> Memory | None:
    """From a dump's `...-buffer-assignment.txt`; None if it holds no allocation."""
    allocations: list[tuple[str, int]] = []
    placed: list[tuple[int, str, int, _Value]] = []
    for line in text.splitlines():
        if match := _ALLOCATION.match(line):
            allocations.append((_kind_of(match.group(2)), int(match.group(1))))
        elif allocations and (match := _VALUE.match(line)):
            index = tuple(int(i) for i in (match.group(2) or "").split(",") if i)
            value = _Value(match.group(1), index, int(match.group(3)))
            placed.append((len(allocations) - 1, allocations[-1][0], int(match.group(4)), value))
    return _memory(allocations, None, placed) if allocations else None


def _kind_of(description: str) -> str:
    words = zip(_KINDS, ("thread-local", "constant", "parameter", "maybe-live-out"), strict=True)
    return next((kind for kind, word in words if word in description), "temporary")


def _memory(
    allocations: Iterable[tuple[str, int]],
    peak: int | None,
    placed: Iterable[tuple[int, str, int, _Value]],
) -> Memory:
    totals = dict.fromkeys((*_KINDS, "temporary"), 0)
    for kind, size in allocations:
        totals[kind] += size
    buffers: dict[tuple[int, int], Buffer] = {}
    places = {}
    for allocation, kind, offset, value in placed:
        places[value.instruction, value.path] = Place(kind, allocation, offset)
        known = buffers.get((allocation, offset))
        if known is None or value.nbytes > known.nbytes:
            buffers[allocation, offset] = Buffer(*value, kind)
    largest = sorted(buffers.values(), key=lambda b: (-b.nbytes, b.instruction, b.index))
    return Memory(
        totals["argument"], totals["output"], totals["temporary"], totals["constant"], peak,
        tuple(largest), places,
    )  # fmt: skip
