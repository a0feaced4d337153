"""Where the instructions of a program stand: computations are walked together, as in `columns.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bk_jax.hlo.columns import Array, wire_values, wire_varints
from bk_jax.hlo.model import HloError
from bk_jax.hlo.wire import BYTES, field

FEW = 64  # computations that are left, from which on walking them one by one is as fast
# Fields of a computation as they begin on the wire.
_NAME, _INSTRUCTION, _NUMBER, _ROOT = 1 << 3 | BYTES, 2 << 3 | BYTES, 5 << 3, 6 << 3
_WORD = (1 << 64) - 1


class Head(NamedTuple):
    """A computation before its instructions are read."""

    number: int
    name: str
    root: int
    spans: Array  # start and stop of every instruction


def read_heads(data: bytes, places: Sequence[tuple[int, int]]) -> list[Head]:
    """Number, name, root and instructions of the computations at `places` of `data`."""
    at, end = np.array(places, np.int64).reshape(-1, 2).T.copy()
    last = {tag: np.zeros((len(at), 2), np.int64) for tag in (_NAME, _NUMBER, _ROOT)}
    found = [np.zeros((0, 3), np.int64)]  # computation, start and stop of instructions
    left = np.flatnonzero(at < end)
    while left.size >= FEW:
        tag, start, stop, value = _next_fields(data, at[left], end[left])
        for wanted, column in last.items():
            hit = np.flatnonzero(tag == wanted)
            content = (start, stop) if wanted == _NAME else (value, value)
            column[left[hit]] = np.stack(content, axis=1)[hit]
        found.append(np.stack((left, start, stop), axis=1)[tag == _INSTRUCTION])
        at[left] = stop
        left = left[stop < end[left]]
    for i in left.tolist():
        found.append(_walk(data, i, int(at[i]), int(end[i]), last))
    return _heads(data, np.concatenate(found), last)


def _next_fields(data: bytes, at: Array, end: Array) -> tuple[Array, Array, Array, Array]:
    octets = np.frombuffer(data, np.uint8)
    tag, after = wire_varints(octets, at)
    found = wire_values(octets, tag & 7, after)
    if (found.stop > end).any():
        raise HloError("truncated: a field is longer than its message.")
    return tag, found.start, found.stop, found.value


def _walk(data: bytes, computation: int, at: int, end: int, last: dict[int, Array]) -> Array:
    """One computation from `at` on: its instructions; the other fields go to `last`."""
    found = []
    while at < end:
        key, start, stop, at = field(data, at, end)
        tag = key << 3 | (BYTES if stop >= 0 else 0)
        if tag == _INSTRUCTION:
            found.append((computation, start, stop))
        elif tag in last:
            last[tag][computation] = start if stop < 0 else (start, stop)
    return np.array(found, np.int64).reshape(-1, 3)


def _heads(data: bytes, found: Array, last: dict[int, Array]) -> list[Head]:
    spans = found[np.argsort(found[:, 0], kind="stable"), 1:]
    ends = np.cumsum(np.bincount(found[:, 0], minlength=len(last[_NAME]))).tolist()
    names = [data[a:b].decode("utf-8", "replace") for a, b in last[_NAME].tolist()]
    numbers, roots = ([n & _WORD for n in last[tag][:, 0].tolist()] for tag in (_NUMBER, _ROOT))
    starts = [0, *ends[:-1]]
    return [
        Head(number, name, root, spans[a:b])
        for number, name, root, a, b in zip(numbers, names, roots, starts, ends, strict=True)
    ]
