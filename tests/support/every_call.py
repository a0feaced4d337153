"""Programs that hold every custom call, several of them independent of each other.

Sizes are such that a call is split into several tasks (2e5 flop each, see xla_plugin/parallel_for.h).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax import ops
from bk_jax.ops.noisy_update import Leaf, Numbers
from bk_jax.ops.weighted_sum import NATIVE_ELEMENTS
from support.arrays import normals

BATCH, T, D, P, ROWS = 6, 40, 48, 56, 30
KEY = np.arange(8, dtype=np.uint32)
WINDOW = ops.Window((1, 3, 3))


class Program(NamedTuple):
    """A jitted function and its operands."""

    run: Callable[..., Any]
    operands: tuple[np.ndarray, ...]

    def bits(self) -> list[bytes]:
        """Runs it and waits."""
        return [np.asarray(x).tobytes() for x in jax.tree.leaves(self.run(*self.operands))]


def dense(a: jax.Array, g: jax.Array) -> Any:
    """Norms of three kinds, then sums of three kinds that wait for all of them."""
    grads, norms = ops.per_sample_grad(a, g)
    squares = [*norms, *ops.ghost_norm(a, g), *ops.ghost_norm(2 * a, g), *ops.direct_norm(a, g)]
    factor, _ = ops.clip_factor(jnp.stack(squares), 1.0, jnp.zeros(BATCH, bool))
    first = ops.clipped_gemm(a, factor, g)
    return squares, first, ops.clipped_gemm(a, 2 * factor, g, first + 1), grads


def stored(factor: jax.Array, grads: jax.Array) -> Any:
    """Sums of gradients that were stored."""
    norms = ops.sum_of_squares(grads, 2 * grads)
    return norms, ops.weighted_sums(factor, [grads, grads + 1]), ops.weighted_sum(factor, grads)


def lookups(ids: jax.Array, g: jax.Array, left: jax.Array, right: jax.Array) -> Any:
    """Norms, cross terms and sums of rows of a table."""
    factor = jnp.linspace(0.1, 1.0, BATCH)
    return (
        ops.embedding_norm(ids, g),
        ops.embedding_norm(ids, 2 * g),
        ops.tied_cross(left, right, ids, g),
        ops.clipped_scatter(ids, factor, g, ROWS),
        ops.clipped_scatter(ids, factor, g, ROWS, jnp.ones((ROWS, g.shape[-1]))),
    )


def convolutions(x: jax.Array, g: jax.Array) -> Any:
    """The three calls of convolutions."""
    norms = ops.conv_norm(x, g, WINDOW)
    return norms, ops.conv_grad(x, g, WINDOW), ops.conv_sum(x, jnp.ones(BATCH), g, WINDOW)


def noise(x: jax.Array) -> Any:
    """Noise of two streams, raw words, and an update after the first noise."""
    words = ops.chacha_bits(KEY, 40_000, stream=3, domain=7)
    noisy = ops.gaussian(x, KEY, 1.0)
    leaves = [Leaf(ops.after(x, noisy), x + 1), Leaf(x[:900], x[:900])]
    numbers = Numbers(stddev=1.0, scale=0.5, step=-0.1)
    updated = ops.noisy_update(leaves, KEY, numbers, optimizer="sgd")
    small = ops.gaussians([x[:900], x[:10], x], KEY, 1.0, streams=(2, 3, 4))
    banded = ops.banded_gaussian(x, np.stack([KEY, KEY + 1]), [1.0, -0.5])
    return noisy, ops.gaussian(x, KEY, 2.0, stream=1), small, words, updated, banded


def programs() -> dict[str, Program]:
    """Five programs of one kind each, and one that holds them all."""
    f32 = np.float32
    ids = np.random.default_rng(0).integers(0, ROWS, (BATCH, T), np.int32)
    wide = NATIVE_ELEMENTS // 2
    kinds = {
        dense: (normals(0, (BATCH, 1, T, D), f32), normals(1, (BATCH, 1, T, P), f32)),
        stored: (normals(2, (BATCH,), f32), normals(3, (BATCH, wide), f32)),
        lookups: (
            ids,
            normals(4, (BATCH, T, 300), f32),
            normals(5, (BATCH, T, ROWS), f32),
            normals(6, (BATCH, T, 300), f32),
        ),
        convolutions: (
            normals(7, (BATCH, 1, 1, 14, 14, 16), f32),
            normals(8, (BATCH, 1, 1, 12, 12, 24), f32),
        ),
        noise: (normals(9, (50_000,), f32),),
    }
    made = {kind.__name__: Program(jax.jit(kind), operands) for kind, operands in kinds.items()}

    def everything(*operands: tuple[jax.Array, ...]) -> Any:
        return [kind(*own) for kind, own in zip(kinds, operands, strict=True)]

    made["everything"] = Program(jax.jit(everything), tuple(kinds.values()))
    return made


def digest(bits: dict[str, list[bytes]]) -> str:
    """One number for all results."""
    joined = b"".join(b for name in sorted(bits) for b in bits[name])
    return hashlib.sha256(joined).hexdigest()
