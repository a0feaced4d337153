"""Memory of a compiled program: XLA's buffer assignment, serialized or as the text of a dump.

Values in the same place of the same allocation share their memory: the largest stands for all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from bk_jax.hlo import schema
from bk_jax.hlo.model import Buffer, Memory, Place
from bk_jax.hlo.table import printable

_ALLOCATION = re.compile(r"^allocation \d+: size (\d{1,18})\b(.*)$")
_VALUE = re.compile(
    r"^ value: <\d+ ([^\s{]++)(?:\{([\d,]{0,99})\})?[^@]*+@\d+> "
    r"\(size=(\d{1,18}),offset=(\d{1,18})\)"
)


_KINDS = ("thread-local", "constant", "argument", "output")  # the first that fits; else temporary


class _Value(NamedTuple):
    instruction: str
    path: tuple[int, ...]  # to an element of a tuple
    nbytes: int


def read_assignment(data: bytes, names: Mapping[int, str], peak: int | None = None) -> Memory:
    """From a serialized `BufferAssignmentProto`; `names` are instructions by number."""
    found = schema.parse("Buffers", data)
    values = {value.id: _value(value, names) for value in found.values}
    allocations = [(_flagged(allocation), allocation.size) for allocation in found.allocations]
    placed = [
        (number, _flagged(allocation), assigned.offset, values[assigned.value])
        for number, allocation in enumerate(found.allocations)
        for assigned in allocation.assigned
        if assigned.value in values
    ]
    return _memory(allocations, peak, placed)


def _value(found: Any, names: Mapping[int, str]) -> _Value:
    number = found.place.instruction
    return _Value(names.get(number, f"#{number}"), tuple(found.place.path), found.size)


def _flagged(allocation: Any) -> str:
    flags = (
        allocation.is_thread_local, allocation.is_constant, allocation.is_argument,
        allocation.is_output,
    )  # fmt: skip
    return next((kind for kind, flag in zip(_KINDS, flags, strict=True) if flag), "temporary")


def read_assignment_text(text: str) -> Memory | None:
    """From a dump's `...-buffer-assignment.txt`; None if it holds no allocation."""
    allocations: list[tuple[str, int]] = []
    placed: list[tuple[int, str, int, _Value]] = []
    for line in text.splitlines():
        if match := _ALLOCATION.match(line):
            allocations.append((_kind_of(match.group(2)), int(match.group(1))))
        elif allocations and (match := _VALUE.match(line)):
            index = tuple(int(i) for i in (match.group(2) or "").split(",") if i)
            value = _Value(printable(match.group(1)), index, int(match.group(3)))
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
