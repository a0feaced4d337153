"""ChaCha20 with Python's integers, straight from RFC 8439: the oracle for keys and words."""

from __future__ import annotations

import struct
from collections.abc import Sequence

MASK = 0xFFFFFFFF
CONSTANTS = struct.unpack("<4I", b"expand 32-byte k")


def block(key: Sequence[int], counter: int, nonce: Sequence[int]) -> list[int]:
    """The block function: 16 words from 8 of the key, a counter and 3 of the nonce."""
    start = [*CONSTANTS, *(int(word) for word in key), counter, *nonce]
    x = list(start)
    for _ in range(10):
        for i in range(4):
            _quarter_round(x, i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            _quarter_round(x, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return [(a + b) & MASK for a, b in zip(x, start, strict=True)]


def word(key: Sequence[int], position: int, stream: int, domain: int) -> int:
    """Word `position` of a stream, in the order of `bk_jax.ops.chacha`."""
    index = 16 * (position // 256) + position % 16
    return block(key, index & MASK, [index >> 32, stream, domain])[position // 16 % 16]


def _quarter_round(x: list[int], a: int, b: int, c: int, d: int) -> None:
    for left, right in [(16, 12), (8, 7)]:
        x[a] = (x[a] + x[b]) & MASK
        x[d] = _rotate(x[d] ^ x[a], left)
        x[c] = (x[c] + x[d]) & MASK
        x[b] = _rotate(x[b] ^ x[c], right)


def _rotate(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (32 - bits))) & MASK
