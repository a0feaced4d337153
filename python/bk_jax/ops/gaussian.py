"""Gaussian noise: `x + stddev * z`, where `z` is a function of key, stream and position alone.

The numbers are the same for any number of threads and instruction set, and for any way to cut an array
into parts: a device that holds the part at `start` of an array of shape `whole` makes exactly its
part. `docs/numerics.md` says which normals these are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax import _native
from bk_jax.ops.chacha import GROUP_WORDS, NOISE, check_key, group_words
from bk_jax.ops.numerics import accumulation_dtype

DTYPES = ("float32", "bfloat16", "float16", "float64")
RUN = 16  # values come in runs: radii, then their angles


def gaussian(
    x: jax.Array,
    key: jax.Array,
    stddev: Any,
    *,
    stream: int = 0,
    start: Sequence[Any] | jax.Array | None = None,
    whole: Sequence[int] | None = None,
) -> jax.Array:
    """`x + stddev * z` with independent standard normal `z`, rounded once for 16-bit types.

    Args:
      x: any shape. Its buffer becomes the result's where XLA sees that nothing else needs it.
      key: `uint32[8]`.
      stddev: a scalar. With 0 the result is `x`, bit for bit.
      stream: number of the parameter, below 2^32; streams are independent.
      start: where `x` lies in an array of shape `whole`; `int32[x.ndim]`, may be traced.
      whole: shape of that array. Omit both when `x` is the whole array.

    An element that is not finite stays so.

    >>> import jax.numpy as jnp
    >>> key = jnp.arange(8, dtype=jnp.uint32)
    >>> noise = gaussian(jnp.zeros((2, 3)), key, 1.0)
    >>> row = gaussian(jnp.zeros((1, 3)), key, 1.0, start=[1, 0], whole=[2, 3])
    >>> bool((row[0] == noise[1]).all())
    True
    """
    check_key("gaussian", key)
    start, whole = check_part("gaussian", x.shape, start, whole)
    if x.dtype.name not in DTYPES:
        wide = gaussian(x.astype(jnp.float32), key, stddev, stream=stream, start=start, whole=whole)
        return wide.astype(x.dtype)
    operands = (x, key, jnp.asarray(stddev, accumulation_dtype(x.dtype)), start)
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    (result,) = _native.call(
        "bk_gaussian", gaussian_twin, [out], *operands,
        aliases={0: 0}, stream=stream, whole=tuple(whole),
    )  # fmt: skip
    return result


def gaussian_twin(
    x: jax.Array,
    key: jax.Array,
    stddev: jax.Array,
    start: jax.Array,
    *,
    stream: int,
    whole: tuple[int, ...],
) -> tuple[jax.Array]:
    """The same in plain JAX: equal ChaCha bits, normals within a few units in the last place."""
    return (_add_normals(x, key, stddev, start, jnp.uint32(stream), whole),)


@functools.partial(jax.jit, static_argnums=5)  # parameters of one shape are traced once
def _add_normals(
    x: jax.Array,
    key: jax.Array,
    stddev: jax.Array,
    start: jax.Array,
    stream: jax.Array,
    whole: tuple[int, ...],
) -> jax.Array:
    if x.size == 0:
        return x
    rows = _rows(x.shape, whole)
    dtype = stddev.dtype
    per_group = GROUP_WORDS * 4 // dtype.itemsize
    high, low = _row_positions(rows, start)
    groups = (rows.length + per_group - 2) // per_group + 1
    shift = per_group.bit_length() - 1
    first = (low >> shift) | (high << (32 - shift))
    index = first[:, None] + jnp.arange(groups, dtype=jnp.uint32)
    carry = (high >> shift)[:, None] + (index < first[:, None]).astype(jnp.uint32)
    words = group_words(key, index.reshape(-1), carry.reshape(-1), stream=stream, domain=NOISE)
    values = normals(words, dtype).reshape(rows.number, groups * per_group)
    offsets = (low & (per_group - 1)).astype(jnp.int32)
    cut = jax.vmap(lambda row, at: jax.lax.dynamic_slice(row, (at,), (rows.length,)))
    noisy = x.astype(dtype) + stddev * cut(values, offsets).reshape(x.shape)
    return jnp.where(stddev == 0, x, noisy.astype(x.dtype))


class _Format(NamedTuple):
    """Bits of a float type, and the polynomials of `custom_calls/cpu/noise/normal-inl.h`."""

    bits: Any
    mantissa: int
    one: int
    atanh: Sequence[str]
    sin: Sequence[str]
    cos: Sequence[str]


_FLOAT = _Format(
    jnp.uint32, 23, 0x3F800000,
    ("0x1p+2", "0x1.5554ep+0", "0x1.99dae6p-1", "0x1.1e5108p-1", "0x1.208bdep-1"),
    ("0x1.921fb6p+0", "-0x1.4abbbap-1", "0x1.465e92p-4", "-0x1.2d9302p-8"),
    ("0x1p+0", "-0x1.3bd3ccp+0", "0x1.03c1dap-2", "-0x1.55c4eap-6", "0x1.d99f5p-11"),
)  # fmt: skip
_DOUBLE = _Format(
    jnp.uint64, 52, 0x3FF0000000000000,
    ("0x1p+2", "0x1.5555555555525p+0", "0x1.99999999a1f86p-1", "0x1.2492492004af7p-1",
     "0x1.c71c74505716bp-2", "0x1.745cae0e5e88dp-2", "0x1.3b1e4879940d9p-2",
     "0x1.1062d80cd54e9p-2", "0x1.f01e18808e8f4p-3", "0x1.549c726fb01f5p-3", "0x1.5d63b22205p-2"),
    ("0x1.921fb54442d18p+0", "-0x1.4abbce625be53p-1", "0x1.466bc6775aad9p-4",
     "-0x1.32d2cce62abbdp-8", "0x1.50783485c2cap-13", "-0x1.e3074b42b2ed8p-19",
     "0x1.e8eec790acd81p-25", "-0x1.6c58c9059c204p-31"),
    ("0x1p+0", "-0x1.3bd3cc9be45dep+0", "0x1.03c1f081b5aaap-2", "-0x1.55d3c7e3c8d5dp-6",
     "0x1.e1f506830409fp-11", "-0x1.a6d1ec3d5a7c7p-16", "0x1.f9cc15e340761p-22",
     "-0x1.b2586fd4d9254p-28"),
)  # fmt: skip


def normals(words: jax.Array, dtype: Any) -> jax.Array:
    """Groups of words `[G, 256]` to standard normals, `[G, 256]` or, for doubles, `[G, 128]`."""
    form = _FLOAT if dtype == jnp.float32 else _DOUBLE
    if form.bits == jnp.uint64:
        pairs = words.reshape(*words.shape[:-1], -1, 2).astype(jnp.uint64)
        words = pairs[..., 0] | (pairs[..., 1] << 32)
    runs = words.reshape(*words.shape[:-1], -1, 2, RUN)
    both = jnp.stack(_box_muller(runs[..., 0, :], runs[..., 1, :], dtype, form), axis=-2)
    return both.reshape(words.shape)


def _box_muller(
    radius: jax.Array, angle: jax.Array, dtype: Any, form: _Format
) -> tuple[jax.Array, jax.Array]:
    width = 8 * np.dtype(dtype).itemsize
    length = jnp.sqrt(_minus_two_log(radius, angle, dtype, form))
    length = jnp.where(angle >> (width - 1) == 1, -length, length)
    turn = ((angle << 2) >> (width - form.mantissa)) | form.bits(form.one | 1)
    t = jax.lax.bitcast_convert_type(turn, dtype) - 1.5
    sine, cosine = t * _polynomial(form.sin, t * t), _polynomial(form.cos, t * t)
    swap = (angle >> (width - 2)) & 1 == 1
    return length * jnp.where(swap, sine, cosine), length * jnp.where(swap, cosine, sine)


def _minus_two_log(radius: jax.Array, angle: jax.Array, dtype: Any, form: _Format) -> jax.Array:
    """`-2 ln u`; the top bit of `radius` says which end of (0, 1) is nearer, the rest how near."""
    width = 8 * np.dtype(dtype).itemsize
    if width == 32:
        below = (angle & 0xFF).astype(dtype) * dtype.type(2.0**-8) + dtype.type(2.0**-9)
        distance = (radius & 0x7FFFFFFF).astype(dtype) + below
    else:
        upper, lower = (radius << 1) >> 33, radius & 0xFFFFFFFF
        distance = upper.astype(dtype) * 2.0**32 + (lower.astype(dtype) + 0.5)
    near_zero = radius >> (width - 1) == 1
    fraction, exponent = jnp.frexp(distance)
    g = jnp.where(near_zero, 1 - fraction, distance * 2.0**-width)
    k = jnp.where(near_zero, exponent - width, 0).astype(dtype)
    s = g / (2 - g)
    return k * dtype.type(-2 * math.log(2)) + s * _polynomial(form.atanh, s * s)


def _polynomial(coefficients: Sequence[str], x: jax.Array) -> jax.Array:
    total = jnp.full_like(x, float.fromhex(coefficients[-1]))
    for c in reversed(coefficients[:-1]):
        total = total * x + x.dtype.type(float.fromhex(c))
    return total


def check_part(
    operation: str, size: Sequence[int], start: Any, whole: Sequence[int] | None
) -> tuple[jax.Array, Sequence[int]]:
    """Where an array of shape `size` lies and in what, with defaults; an error if it cannot."""
    if (start is None) != (whole is None):
        raise ValueError(
            f"{operation} expects start and whole together: where x lies, and in what."
        )
    if whole is None:
        return jnp.zeros(len(size), jnp.int32), size
    start = jnp.asarray(start, jnp.int32)
    fits = len(whole) == len(size) and all(n <= m for n, m in zip(size, whole, strict=True))
    if start.shape != (len(size),) or not fits:
        raise ValueError(
            f"{operation} expects x to be a part of an array of shape whole, and start to have one "
            f"entry per dimension; got x {tuple(size)}, whole {tuple(whole)}, start {start.shape}."
        )
    return start, whole


class _Rows(NamedTuple):
    """A part as rows: runs of neighbours in the whole array, numbered by the leading dimensions."""

    number: int
    length: int
    leading: tuple[int, ...]
    strides: tuple[int, ...]  # of every dimension of the whole array


def _rows(size: Sequence[int], whole: Sequence[int]) -> _Rows:
    axis = len(size)
    while axis > 0:
        axis -= 1
        if size[axis] != whole[axis]:
            break
    strides = tuple(math.prod(whole[k + 1 :]) for k in range(len(whole)))
    leading = tuple(size[:axis])
    return _Rows(math.prod(leading), math.prod(size[axis:]), leading, strides)


def _row_positions(rows: _Rows, start: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Where each row begins, as high and low halves `[rows]` of 64 bits."""
    high = low = jnp.zeros(rows.number, jnp.uint32)
    index = np.indices(rows.leading).reshape(len(rows.leading), rows.number)
    for axis, stride in enumerate(rows.strides):
        at = jnp.broadcast_to(start[axis].astype(jnp.uint32), rows.number)
        if axis < len(rows.leading):
            at = at + jnp.asarray(index[axis], jnp.uint32)
        product_high, product_low = multiply_wide(at, stride & 0xFFFFFFFF)
        low = low + product_low
        carry = (low < product_low).astype(jnp.uint32)
        high = high + product_high + at * jnp.uint32(stride >> 32) + carry
    return high, low


def multiply_wide(x: jax.Array, c: int) -> tuple[jax.Array, jax.Array]:
    """High and low half of the 64-bit product of `x` and a constant below 2^32."""
    x0, x1 = x & 0xFFFF, x >> 16
    c0, c1 = jnp.uint32(c & 0xFFFF), jnp.uint32(c >> 16)
    middle = (x0 * c0 >> 16) + (x0 * c1 & 0xFFFF) + (x1 * c0 & 0xFFFF)
    high = x1 * c1 + (x0 * c1 >> 16) + (x1 * c0 >> 16) + (middle >> 16)
    return high, (middle << 16) | (x0 * c0 & 0xFFFF)
