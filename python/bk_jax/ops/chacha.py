"""ChaCha20 (RFC 8439): random words that are a function of key, stream and position.

A block of 16 words comes from a 256-bit key and four more words:

| word of the state | holds |
|---|---|
| 12, 13 | index of the block, low and high 32 bits |
| 14 | stream: one of many independent sequences of a key |
| 15 | domain: what the words are for |

Sixteen blocks form a group of 256 words. Word `w` of block `b` of a group has the place `16 w + b`,
so that a vector of blocks gives neighbouring words. `custom_calls/noise.h` says the same for C++.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import _native
from bk_jax.sharding.varying import vary_together

CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)  # "expand 32-byte k"
KEY_WORDS = 8
GROUP_WORDS = 256
BLOCKS_PER_GROUP = 16

# What words are for. Domains of one key share no block, so noise never equals a user's draws.
BITS, SPLIT, FOLD_IN, SEED, NOISE, GRID = 1, 2, 3, 4, 5, 6


def chacha_bits(key: jax.Array, count: int, *, stream: int, domain: int) -> jax.Array:
    """The first `count` words of a stream, `uint32[count]`.

    >>> import jax.numpy as jnp
    >>> word = chacha_bits(jnp.zeros(8, jnp.uint32), 1, stream=0, domain=0)[0]
    >>> hex(word)  # RFC 8439, appendix A.1, vector 1
    '0xade0b876'
    """
    check_key("chacha_bits", key)
    out = jax.ShapeDtypeStruct((count,), jnp.uint32)
    (words,) = _native.call(
        "bk_chacha_bits", chacha_bits_twin, [out], key, count=count, stream=stream, domain=domain
    )
    return words


def chacha_bits_twin(key: jax.Array, *, count: int, stream: int, domain: int) -> tuple[jax.Array]:
    """The same in plain JAX."""
    groups = jnp.arange(-(-count // GROUP_WORDS), dtype=jnp.uint32)
    words = group_words(key, groups, jnp.zeros_like(groups), stream=stream, domain=domain)
    return (words.reshape(-1)[:count],)


def group_words(key: jax.Array, low: jax.Array, high: jax.Array, **words: Any) -> jax.Array:
    """Groups of words, `[G, 256]`, for group indices given as low and high halves `[G]`."""
    place = jnp.arange(BLOCKS_PER_GROUP, dtype=jnp.uint32)
    counter = ((low << 4)[:, None] | place).reshape(-1)
    carry = jnp.repeat((high << 4) | (low >> 28), BLOCKS_PER_GROUP)
    blocks = chacha_blocks(key, counter, carry, **words)
    grouped = blocks.reshape(16, *low.shape, BLOCKS_PER_GROUP)
    return jnp.moveaxis(grouped, 0, 1).reshape(*low.shape, GROUP_WORDS)


def chacha_blocks(
    key: jax.Array, counter: jax.Array, high: Any, *, stream: Any, domain: Any
) -> jax.Array:
    """Blocks `[16, n]` for the block counters `[n]`."""

    def row(*words: Any) -> jax.Array:
        spread = [jnp.broadcast_to(jnp.asarray(w, jnp.uint32), counter.shape) for w in words]
        return jnp.stack(spread)

    rows = (row(*CONSTANTS), row(*key[:4]), row(*key[4:]), row(counter, high, stream, domain))
    start = tuple(vary_together(rows))  # in a loop all must have one type
    end = jax.lax.fori_loop(0, 10, lambda _, rows: _double_round(*rows), start)
    return jnp.concatenate([x + y for x, y in zip(start, end, strict=True)])


def check_key(operation: str, key: Any) -> None:
    """A ChaCha key is `uint32[8]`."""
    if jnp.shape(key) != (KEY_WORDS,) or jnp.result_type(key) != jnp.uint32:
        raise ValueError(
            f"{operation} expects a key uint32[{KEY_WORDS}], got {jnp.result_type(key)}"
            f"{list(jnp.shape(key))}; jax.random.key_data(bk_jax.random.key()) makes one."
        )


def _double_round(*rows: jax.Array) -> tuple[jax.Array, ...]:
    """Columns, then diagonals; rows `[4, n]` are rotated so that diagonals become columns."""
    a, b, c, d = _quarter_rounds(*rows)
    turned = (a, jnp.roll(b, -1, 0), jnp.roll(c, -2, 0), jnp.roll(d, -3, 0))
    a, b, c, d = _quarter_rounds(*turned)
    return a, jnp.roll(b, 1, 0), jnp.roll(c, 2, 0), jnp.roll(d, 3, 0)


def _quarter_rounds(
    a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array
) -> tuple[jax.Array, ...]:
    for left, right in [(16, 12), (8, 7)]:
        a = a + b
        d = _rotate(d ^ a, left)
        c = c + d
        b = _rotate(b ^ c, right)
    return a, b, c, d


def _rotate(x: jax.Array, bits: int) -> jax.Array:
    return (x << bits) | (x >> (32 - bits))
