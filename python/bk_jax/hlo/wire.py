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
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if kind == BYTES:
            size, at = _varint(data, at)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise HloError(f"not a protocol buffer: a field of wire type {kind}.")
        if at + size > end:
            raise HloError(f"truncated: a field of {size} bytes where {end - at} are left.")
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = data[at]
            at += 1
            if byte < 128:
                return value | byte << shift, at
            value |= (byte & 127) << shift
            shift += 7
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
