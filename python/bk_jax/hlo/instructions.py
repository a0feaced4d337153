"""Computations and instructions from a serialized program, many at a time."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bk_jax.hlo.columns import Array, Column, read_columns
from bk_jax.hlo.frames import Frames, last
from bk_jax.hlo.heads import Head
from bk_jax.hlo.model import Computation, HloError, Instruction, Shape
from bk_jax.hlo.wire import fields, integers, message, number, text

DTYPES = {
    1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64",
    10: "f16", 11: "f32", 12: "f64", 13: "tuple", 14: "opaque", 15: "c64", 16: "bf16", 17: "token",
    18: "c128", 19: "f8e5m2", 20: "f8e4m3fn", 21: "s4", 22: "u4", 23: "f8e4m3b11fnuz",
    24: "f8e5m2fnuz", 25: "f8e4m3fnuz", 26: "s2", 27: "u2", 28: "f8e4m3", 29: "f8e3m4", 30: "s1",
    31: "u1", 32: "f4e2m1fn", 33: "f8e8m0fnu",
}  # fmt: skip
MOST_KNOWN = 1 << 16
CHUNK = 16384  # instructions that are read at once: bounds what stands beside the result in memory
_WANTED = (1, 2, 3, 7, 9, 13, 16, 28, 30, 35, 36, 38, 43)  # fields of an instruction
_INTEGERS, _NUMBER = (9, 13), 35
_new = tuple.__new__
_NUMBERS = re.compile(rb"[\x80-\xff]*[\x00-\x7f]")  # packed: each ends with a byte below 128


class _Fields(NamedTuple):
    name: list[str]
    opcode: list[bytes]
    shape: list[bytes]
    metadata: list[bytes]
    parameter: list[int]
    element: list[int]
    convolution: list[bytes]
    target: list[bytes]
    dot: list[bytes]
    number: list[int]
    key: list[bytes]  # the number as it is written
    operands: list[bytes]
    called: list[bytes]
    config: list[bytes]


Read = tuple[dict[str, Computation], dict[int, str]]


def read_computations(
    data: bytes, heads: Sequence[Head], frames: Frames, schedule: bytes = b""
) -> Read:
    """Computations by name, and names of instructions by number.

    Instructions stand as XLA scheduled them, or where it did not, operands before their readers.
    """
    sequences = dict(_sequences(schedule))
    functions = {_varint(head.number): head.name for head in heads}
    sources = Sources(frames, {})
    computations: dict[str, Computation] = {}
    numbered: dict[int, str] = {}
    for group in _groups(heads):
        found = _read_fields(data, np.concatenate([head.spans for head in group]))
        rows, at = zip(*found, strict=True), 0
        for head in group:
            here = slice(at, at + len(head.spans))
            own = dict(zip(found.key[here], found.name[here], strict=True))
            made = tuple(_make_all(itertools.islice(rows, len(own)), own, functions, sources))
            if head.number in sequences:
                made = _in_order(made, list(own), sequences[head.number])
            computations[head.name] = Computation(head.name, made, own.get(_varint(head.root), ""))
            at = here.stop
        numbered.update(zip(found.number, found.name, strict=True))
    return computations, numbered


def _sequences(schedule: bytes) -> Iterator[tuple[int, bytes]]:
    """From a serialized `HloScheduleProto`: packed numbers of instructions by computation."""
    for key, value in fields(schedule):
        entry = dict(fields(message(value))) if key == 1 else {}
        yield number(entry.get(1, 0)), message(dict(fields(message(entry.get(2, b"")))).get(1, b""))


def _in_order(
    made: tuple[Instruction, ...], keys: list[bytes], sequence: bytes
) -> tuple[Instruction, ...]:
    """Instructions in the order of a schedule that has them all; as they are otherwise."""
    by_key = dict(zip(keys, made, strict=True))
    order = _NUMBERS.findall(sequence)
    return tuple([by_key[key] for key in order]) if by_key.keys() == set(order) else made


def _groups(heads: Sequence[Head]) -> Iterator[list[Head]]:
    group: list[Head] = []
    count = 0
    for head in heads:
        if group and count + len(head.spans) > CHUNK:
            yield group
            group, count = [], 0
        group.append(head)
        count += len(head.spans)
    if group:
        yield group


def _read_fields(data: bytes, places: Array) -> _Fields:
    found = dict(zip(_WANTED, read_columns(data, places, _WANTED), strict=True))
    cut = {key: _cut(data, column) for key, column in found.items() if key not in _INTEGERS}
    numbers = {key: found[key].value.clip(0).tolist() for key in (*_INTEGERS, _NUMBER)}
    names = [name.decode("utf-8", "replace") for name in cut[1]]
    keys = [key or b"\0" for key in cut[_NUMBER]]  # zero is not written
    return _Fields(
        names, cut[2], cut[3], cut[7], numbers[9], numbers[13], cut[16], cut[28], cut[30],
        numbers[35], keys, cut[36], cut[38], cut[43],
    )  # fmt: skip


def _cut(data: bytes, column: Column) -> list[bytes]:
    """The bytes of a field in every message, none where it is missing."""
    if (column.start >= 0).mean() > 0.5:
        return [data[a:b] for a, b in zip(column.start.tolist(), column.stop.tolist(), strict=True)]
    out = [b""] * len(column.start)
    for i in np.flatnonzero(column.start >= 0).tolist():
        out[i] = data[column.start[i] : column.stop[i]]
    return out


Row = tuple[
    str, bytes, bytes, bytes, int, int, bytes, bytes, bytes, int, bytes, bytes, bytes, bytes
]


def _make_all(
    rows: Iterable[Row], own: dict[bytes, str], functions: dict[bytes, str], sources: Sources
) -> Iterator[Instruction]:
    known = sources.known
    for (
        name, opcode, shape, metadata, parameter, element, convolution, target, dot, _, _, operands,
        called, config,
    ) in rows:  # fmt: skip
        op_name, source = known.get(metadata) or sources.read(metadata)
        contracted, batched = _read_dot(dot) if dot else ((), ())
        values = (
            name,
            _text(opcode),
            _read_shape(shape),
            _look_up(own, operands, name) if operands else (),
            _look_up(functions, called, name) if called else (),
            _text(target) if target else "",
            op_name,
            source,
            config.decode("utf-8", "replace") if config else "",
            parameter or element,
            contracted,
            batched,
            last(convolution, 4) if convolution else 0,
        )
        yield _new(Instruction, values)  # as Instruction(*values), in half the time


def _look_up(names: dict[bytes, str], packed: bytes, reader: str) -> tuple[str, ...]:
    try:
        return tuple(map(names.__getitem__, _NUMBERS.findall(packed)))
    except KeyError as error:
        missing = integers(error.args[0])[0]
        raise HloError(f"{reader} refers to {missing}, which is not in the program.") from None


def _varint(value: int) -> bytes:
    """A number as it is written."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


@functools.lru_cache(maxsize=1024)
def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


@functools.lru_cache(maxsize=4096)
def _read_shape(data: bytes) -> Shape:
    dtype, dims, layout = "opaque", [], None
    parts = []
    for key, value in fields(data):
        if key == 2:
            dtype = DTYPES.get(number(value), "opaque")
        elif key == 3:
            dims += integers(value)
        elif key == 4:
            parts.append(_read_shape(message(value)))
        elif key == 5:
            layout = tuple(n for k, v in fields(message(value)) if k == 1 for n in integers(v))
    return Shape(dtype, tuple(dims), layout, tuple(parts))


class Sources(NamedTuple):
    """Name stack and source line by an instruction's metadata, which many have in common."""

    frames: Frames
    known: dict[bytes, tuple[str, str]]

    def read(self, data: bytes) -> tuple[str, str]:
        """From serialized `OpMetadata`."""
        found = {key: value for key, value in fields(data) if key in (2, 3, 4, 15)}
        file, line = text(found.get(3, b"")), number(found.get(4, 0))
        source = f"{file}:{line}" if file else self.frames.source(number(found.get(15, 0)))
        if len(self.known) < MOST_KNOWN:
            self.known[data] = text(found.get(2, b"")), source
        return text(found.get(2, b"")), source


@functools.lru_cache(maxsize=4096)
def _read_dot(data: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    contracted, batched = [], []
    for key, value in fields(data):
        if key == 1:
            contracted += integers(value)
        elif key == 3:
            batched += integers(value)
    return tuple(contracted), tuple(batched)
