"""Noise: independent Gaussians for every parameter, from one key per step.

    noisy[i] = sums[i] + stddev * z(key, i, position)

`z` is cryptographic: without the key nobody can tell it from independent normals faster than by
trying keys. It depends on nothing else, so method, microbatches, threads and devices do not change it.

| key | bits that a guesser has to find |
|---|---|
| `bk_jax.random.key()` and its splits | 256 |
| `jax.random.key(seed)`, threefry | 64 at most, and no more than the seed has |
| "rbg" and others | what `jax.random.bits` gets out of them |
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import ops
from bk_jax.ops.chacha import KEY_WORDS
from bk_jax.ops.gaussians import TOGETHER
from bk_jax.ops.numerics import accumulation_dtype
from bk_jax.random import is_chacha
from bk_jax.sharding.manual import NOT_MANUAL, Manual, place
from bk_jax.sharding.partition import Rule, Shards, is_cut, sharded

# "bkjx": keeps noise apart from what a user draws from the same key, unless they fold in just this.
NOISE_TAG = 0x626B6A78


def add_noise(
    sums: Sequence[jax.Array], key: Any, stddev: Any, manual: Manual = NOT_MANUAL
) -> list[jax.Array]:
    """Adds `N(0, stddev^2)` to every element; array number `i` draws from stream `i` of the key.

    With several keys and as many deviations, `[terms]`, it adds the draws of all of them.
    """
    words = own_words(key, sums)
    if manual:
        return [_add_to_part(total, words, stddev, i, manual) for i, total in enumerate(sums)]
    noisy = _add_together(sums, words, stddev) if words.ndim == 1 else {}
    dtypes = [accumulation_dtype(total.dtype) for total in sums]
    deviations = {dtype: jnp.asarray(stddev, dtype) for dtype in dict.fromkeys(dtypes)}
    return [
        noisy[i] if i in noisy else _add(total, words, deviations[dtype], stream=i)
        for i, (total, dtype) in enumerate(zip(sums, dtypes, strict=True))
    ]


def add_grid_noise(
    sums: Sequence[jax.Array], key: Any, bits: int, manual: Manual = NOT_MANUAL
) -> list[jax.Array]:
    """Adds discrete Gaussians of deviation `2^bits` to int32 sums, modulo 2^32; streams as above."""
    words = own_words(key, sums)
    if manual:
        draw = functools.partial(ops.discrete_gaussian, key=words, bits=bits)
        return [_to_part(draw, total, i, manual) for i, total in enumerate(sums)]
    if not is_cut():
        return ops.discrete_gaussians(sums, words, bits=bits)
    return [_add_integers(total, words, stream=i, bits=bits) for i, total in enumerate(sums)]


def _add_together(sums: Sequence[jax.Array], words: jax.Array, stddev: Any) -> dict[int, jax.Array]:
    """Noise of the small arrays, by their numbers: one call for all of them, on one device."""
    if is_cut():
        return {}
    small = [
        i for i, total in enumerate(sums) if total.dtype == jnp.float32 and total.size <= TOGETHER
    ]
    noisy = ops.gaussians([sums[i] for i in small], words, stddev, streams=small)
    return dict(zip(small, noisy, strict=True))


def own_words(key: Any, sums: Sequence[jax.Array]) -> jax.Array:
    """The ChaCha key `uint32[8]` for the noise of these sums; under `vmap`, each model's own."""
    return _own_key(noise_key(key), list(sums))


@jax.custom_batching.custom_vmap
def _own_key(words: jax.Array, sums: list[jax.Array]) -> jax.Array:
    """The key itself. Under `vmap`, sums of several models must come with a key for each."""
    del sums
    return words


@_own_key.def_vmap
def _check_own_key(
    size: int, is_batched: Any, words: jax.Array, sums: list[jax.Array]
) -> tuple[jax.Array, bool]:
    has_own, sums_differ = is_batched[0], any(is_batched[1])
    if sums_differ and not has_own:
        raise ValueError(
            f"vmap over a private gradient shares one key between {size} models: all would get the same "
            "noise, which cancels in their differences. Give each its own: "
            f"keys = jax.random.split(key, {size}), mapped with in_axes 0 like the parameters."
        )
    return _own_key(words, sums) if not has_own else words, has_own


def _add_to_part(
    total: jax.Array, words: jax.Array, stddev: Any, stream: int, manual: Manual
) -> jax.Array:
    """The noise of this device's part inside a `shard_map`."""
    draw = functools.partial(_draw, words=words, stddev=stddev)
    return _to_part(draw, total, stream, manual)


def _to_part(
    draw: Callable[..., jax.Array], total: jax.Array, stream: int, manual: Manual
) -> jax.Array:
    found = place(manual, total)
    if found is None:
        return draw(total, stream=stream)
    start, whole = found
    part = total.reshape(total.shape or (1,))
    return draw(part, stream=stream, start=start, whole=whole).reshape(total.shape)


def _labels(total: jax.Array) -> list[str]:
    return [f"x{i}" for i in range(total.ndim)]


def _add_rule(total: jax.Array, words: jax.Array, stddev: jax.Array, *, stream: int) -> Rule:
    labels = " ".join(_labels(total))
    terms = "t" if stddev.ndim else ""
    return Rule((labels, f"{terms} k".strip(), terms), (labels,), frozenset({"k", *terms}))


@sharded(_add_rule)
def _add(
    shards: Shards, part: jax.Array, words: jax.Array, stddev: jax.Array, *, stream: int
) -> jax.Array:
    """Each device makes the noise of its own part, from the places of that part in the whole array."""
    return _draw(part, words, stddev, stream=stream, **_where(shards, part))


def _integer_rule(total: jax.Array, words: jax.Array, *, stream: int, bits: int) -> Rule:
    labels = " ".join(_labels(total))
    return Rule((labels, "k"), (labels,), frozenset({"k"}))


@sharded(_integer_rule)
def _add_integers(
    shards: Shards, part: jax.Array, words: jax.Array, *, stream: int, bits: int
) -> jax.Array:
    return ops.discrete_gaussian(part, words, bits=bits, stream=stream, **_where(shards, part))


def _where(shards: Shards, part: jax.Array) -> dict[str, Any]:
    """Where a device's part lies in the whole array, if it is a part."""
    labels = _labels(part)
    if not shards.over(*labels):
        return {}
    sizes = list(zip(labels, part.shape, strict=True))
    start = jnp.stack([jnp.asarray(shards.start(*size), jnp.int32) for size in sizes])
    return {"start": start, "whole": tuple(n * shards.count(label) for label, n in sizes)}


def _draw(part: jax.Array, words: jax.Array, stddev: Any, **where: Any) -> jax.Array:
    """The draw of one key, or of several."""
    operation = ops.gaussian if words.ndim == 1 else ops.banded_gaussian
    return operation(part, words, stddev, **where)


def noise_key(key: Any) -> jax.Array:
    """The ChaCha key `uint32[8]` behind a JAX key of any kind; `[terms, 8]` for an array of keys.

    A key of `bk_jax.random` is taken as it is: noise has a domain of its own there. From another
    key 256 bits are drawn, which are no harder to guess than that key.
    """
    key = jnp.asarray(key)
    if is_chacha(key):
        return jax.random.key_data(key)
    if key.ndim and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return jnp.stack([noise_key(one) for one in key])
    return jax.random.bits(jax.random.fold_in(key, NOISE_TAG), (KEY_WORDS,), jnp.uint32)
