"""Protocol buffers on the wire: fields of a message, without a schema.

jaxlib parses and checks programs but shows little of them to Python (no shapes, no metadata); what it
serializes holds everything, and the numbers of its fields never change their meaning.
"""

from __future__ import annotations

from collections.abc import Iterator

from bk_jax.hlo.model import HloError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    r"""Numbers and values of a message's fields, in order.

    >>> list(fields(b"\x08\x96\x01" + b"\x12\x02hi"))
    [(1, 150), (2, b'hi')]
    """
    for key, at, end in spans(data, 0, len(data)):
        yield key, (at if end < 0 else data[at:end])


def spans(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Fields of the message `data[at:end]`: number, and `start, stop` of a message or `value, -1`."""
    while at < end:
        key, start, stop, at = field(data, at, end)
        yield key, start, stop


def field(data: bytes, at: int, end: int) -> tuple[int, int, int, int]:
    """The field at one place as in `spans`, and what comes after it."""
    tag, at = data[at], at + 1
    if tag > 127:
        tag, at = _varint(data, at - 1)
    kind = tag & 7
    if kind == VARINT:
        value, at = _varint(data, at)
        return tag >> 3, value, -1, at
    if kind == BYTES:
        size, at = _varint(data, at)
    elif kind in (FIXED32, FIXED64):
        size = 4 if kind == FIXED32 else 8
    else:
        raise HloError(f"not a protocol buffer: a field of wire type {kind}.")
    if at + size > end:
        raise HloError(f"truncated: a field of {size} bytes where {end - at} are left.")
    return tag >> 3, at, at + size, at + size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    try:
        value, shift = data[at], 7
        while value >> shift:  # the bit of the last byte read that says there is one more
            at += 1
            value += (data[at] - 1) << shift
            shift += 7
        return value, at + 1
    except IndexError:
        raise HloError("truncated in the middle of a number.") from None


def integers(value: int | bytes) -> list[int]:
    """A repeated integer field: packed, or one value of several."""
    if isinstance(value, int):
        return [value]
    numbers, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        numbers.append(number)
    return numbers


def message(value: int | bytes) -> bytes:
    """A field that must be a message or a string."""
    if isinstance(value, int):
        raise HloError("not what was expected: a number in the place of a message.")
    return value


def number(value: int | bytes) -> int:
    """A field that must be an integer."""
    if not isinstance(value, int):
        raise HloError("not what was expected: a message in the place of a number.")
    return value


def text(value: int | bytes) -> str:
    """A field that must be a string."""
    return message(value).decode("utf-8", "replace")
