"""Keys of 256 bits for JAX: ChaCha20 as a PRNG implementation.

    key = bk_jax.random.key()               # from the operating system
    key, step_key = jax.random.split(key)   # everything else is jax.random

`jax.random.split`, `fold_in`, `bits`, `uniform`, `normal` and the rest work on such a key, under `jit`
and `vmap`. JAX's own default keys (threefry) have 64 bits and are not meant for cryptography; noise
that must hide something should come from a key that nobody can guess.

Each function of the implementation is one use of ChaCha20, in a domain of its own
(`bk_jax.ops.chacha`), so what is drawn from a key, what is split off it and the noise that it
makes have no block in common.

| use | domain | stream | block |
|---|---|---|---|
| `random_bits` | BITS | width of the integers | position |
| `split` | SPLIT | 0 | index of the new key, which is half a block |
| `fold_in` | FOLD_IN | the number folded in | 0 |
| `seed` | SEED | 0 | 0, with the seed as the key |
| noise (`bk_jax.ops.gaussian`) | NOISE | index of the parameter | position |
"""

from __future__ import annotations

import functools
import math
import secrets
from collections.abc import Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax import _compat
from bk_jax._compat import define_prng_impl
from bk_jax.ops.chacha import (
    BITS,
    FOLD_IN,
    GROUP_WORDS,
    KEY_WORDS,
    SEED,
    SPLIT,
    chacha_bits,
    chacha_bits_twin,
    chacha_blocks,
)

__all__ = ["CHACHA20", "key"]

# Below this many words plain JAX is used: it fuses, and it stays parallel under vmap over keys.
FEW_WORDS = 4 * GROUP_WORDS


def key(seed: int | None = None) -> jax.Array:
    """A new key, from the operating system's generator, or from a seed to repeat an experiment.

    Args:
      seed: a number below 2^256 that nobody else knows, or `None`. A run whose seed is known has no
        privacy. Below 2^31 the key is that of `jax.random.key(seed, impl=bk_jax.random.CHACHA20)`.

    Without a seed it must be called outside of `jit`, `vmap` and the like: there the key would become a
    constant of the compiled program, which adds the same noise at every call.

    >>> import jax
    >>> key(7).dtype
    key<chacha20>
    >>> print(jax.random.bits(key(7), (2,)) == jax.random.bits(key(7), (2,)))
    [ True  True]
    """
    if seed is None:
        refuse_tracing("bk_jax.random.key() without a seed")
        words = np.frombuffer(secrets.token_bytes(4 * KEY_WORDS), np.uint32)
        return jax.random.wrap_key_data(jnp.asarray(words), impl=CHACHA20)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**256:
        raise ValueError(f"seed must be a whole number, 0 <= seed < 2**256, or None; got {seed!r}.")
    words = np.frombuffer(seed.to_bytes(4 * KEY_WORDS, "little"), "<u4").astype(np.uint32)
    return jax.random.wrap_key_data(_hash_seed(words), impl=CHACHA20)


def refuse_tracing(call: str) -> None:
    """Raises while a function is traced: a fresh key would become a constant of the program."""
    if _compat.is_tracing():
        raise RuntimeError(
            f"{call} was called while a function is traced (by jit, vmap, grad or scan): the key would "
            "be a constant of the compiled program, and every call would add the same noise. Make the "
            "key outside and pass it in as an argument."
        )


def is_chacha(key: Any) -> bool:
    """Whether a key is one of this module's."""
    return jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and jax.random.key_impl(key) == CHACHA20


@jax.jit
def _hash_seed(words: jax.Array) -> jax.Array:
    counter = jnp.zeros(1, jnp.uint32)
    return chacha_blocks(words, counter, 0, stream=0, domain=SEED)[:KEY_WORDS, 0]


def _seed(seed: jax.Array) -> jax.Array:
    """Up to 64 bits of seed, as JAX hands them over; the sign does not count as a number."""
    low = seed.astype(jnp.uint32)
    wide = jnp.issubdtype(seed.dtype, jnp.integer) and seed.dtype.itemsize == 8
    shifted = jax.lax.shift_right_logical(seed, jnp.asarray(32, seed.dtype)) if wide else None
    high = jnp.zeros_like(low) if shifted is None else shifted.astype(jnp.uint32)
    return _hash_seed(jnp.zeros(KEY_WORDS, jnp.uint32).at[0].set(low).at[1].set(high))


@functools.partial(jax.jit, static_argnums=1)
def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    index = jnp.arange(math.prod(shape), dtype=jnp.uint32)
    blocks = chacha_blocks(key, index, 0, stream=0, domain=SPLIT)
    return blocks[:KEY_WORDS].T.reshape(*shape, KEY_WORDS)


@jax.jit
def _fold_in(key: jax.Array, data: jax.Array) -> jax.Array:
    counter = jnp.zeros(1, jnp.uint32)
    return chacha_blocks(key, counter, 0, stream=data, domain=FOLD_IN)[:KEY_WORDS, 0]


@functools.partial(jax.jit, static_argnums=(1, 2))
def _random_bits(key: jax.Array, bit_width: int, shape: Sequence[int]) -> jax.Array:
    size = math.prod(shape)
    words = _words(key, -(-size * bit_width // 32), stream=bit_width)
    if bit_width == 64:
        pairs = words.reshape(size, 2).astype(jnp.uint64)
        return (pairs[:, 0] | (pairs[:, 1] << 32)).reshape(shape)
    narrow = {8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}[bit_width]
    return jax.lax.bitcast_convert_type(words, narrow).reshape(-1)[:size].reshape(shape)


def _words(key: jax.Array, count: int, stream: int) -> jax.Array:
    if count <= FEW_WORDS:
        return chacha_bits_twin(key, count=count, stream=stream, domain=BITS)[0]
    return chacha_bits(key, count, stream=stream, domain=BITS)


CHACHA20: Hashable = define_prng_impl(
    key_shape=(KEY_WORDS,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="bk_jax_chacha20",
    tag="chacha20",
)
