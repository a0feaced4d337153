"""Fields of many messages at once: what `wire.fields` does for one, with one pass of NumPy for all.

A dump of 50 MB has some 300 000 instructions of a dozen fields. Message after message in Python takes 30
microseconds for each; here all messages read their first field together, then their second, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bk_jax.hlo.model import HloError
from bk_jax.hlo.wire import BYTES, FIXED32, FIXED64, VARINT

Array = np.ndarray


class Column(NamedTuple):
    """One field of every message; -1 where a message has none, the last one where it has several."""

    start: Array  # the bytes `start:stop` of the data are its content
    stop: Array
    value: Array  # of a number


def read_columns(
    data: bytes, spans: Sequence[tuple[int, int]] | Array, wanted: Sequence[int]
) -> list[Column]:
    r"""The wanted fields of the messages at `spans` of `data`.

    >>> name, number = read_columns(b"\x0a\x02hi\x10\x07", [(0, 4), (0, 6), (4, 6)], [1, 2])
    >>> name.start.tolist(), name.stop.tolist(), number.value.tolist()
    ([2, 2, -1], [4, 4, -1], [-1, 7, 7])
    """
    octets = np.frombuffer(data, np.uint8)
    at, end = np.array(spans, np.int64).reshape(-1, 2).T.copy()
    columns = {key: Column(*np.full((3, len(at)), -1)) for key in wanted}
    left = np.flatnonzero(at < end)
    while left.size:
        tag, after = wire_varints(octets, at[left])
        found = wire_values(octets, tag & 7, after)
        if (found.stop > end[left]).any():
            raise HloError("truncated: a field is longer than its message.")
        key = tag >> 3
        for number in columns.keys() & set(np.unique(key).tolist()):
            hit = np.flatnonzero(key == number)
            for column, values in zip(columns[number], found, strict=True):
                column[left[hit]] = values[hit]
        at[left] = found.stop
        left = left[found.stop < end[left]]
    return [columns[key] for key in wanted]


def wire_values(octets: Array, kind: Array, at: Array) -> Column:
    """The fields of the given wire types whose values stand at the given places."""
    if not np.isin(kind, (VARINT, FIXED64, BYTES, FIXED32)).all():
        raise HloError("not a protocol buffer: a field of an unknown wire type.")
    value, after = np.zeros_like(at), at.copy()
    leads = np.flatnonzero((kind == VARINT) | (kind == BYTES))
    value[leads], after[leads] = wire_varints(octets, at[leads])
    size = np.select([kind == BYTES, kind == FIXED64, kind == FIXED32], [value, 8, 4], 0)
    if (size < 0).any():
        raise HloError("not a protocol buffer: a field of negative size.")
    return Column(np.where(kind == BYTES, after, at), after + size, value)


def wire_varints(octets: Array, at: Array) -> tuple[Array, Array]:
    """Numbers at the given places, and what comes after them."""
    value, at = np.zeros_like(at), at.copy()
    open_ = np.arange(len(at))
    for shift in range(0, 70, 7):
        if not open_.size:
            return value, at
        if at[open_].max() >= octets.size:
            break
        octet = octets[at[open_]].astype(np.int64)
        value[open_] |= (octet & 127) << shift
        at[open_] += 1
        open_ = open_[octet > 127]
    if open_.size:
        raise HloError("truncated in the middle of a number.")
    return value, at
