"""Lookups: the native kernels against what plain JAX offers, in one process, interleaved.

    bazel run //benchmarks/ops:sparse_benchmark -- --budget 5

- embedding norm against the equality-mask form `sum_ts [id_t = id_s] g_t . g_s`, with two ways to write
  its Gram matrix, and against the twin (sort, segment sum, square);
- clipped scatter against XLA's scatter, into zeros and onto the gradient of a tied head;
- tied cross term against the twin, which holds the T x T matrix.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.ops.machine import describe
from benchmarks.ops.report import HEADER, show
from bk_jax import ops
from bk_jax.ops.clipped_scatter import clipped_scatter_twin
from bk_jax.ops.embedding_norm import embedding_norm_twin
from bk_jax.ops.tied_cross import tied_cross_twin

VOCABULARY = 50257


def mask_norm(ids: jax.Array, g: jax.Array) -> jax.Array:
    """The equality-mask form of other libraries."""
    same = ids[:, :, None] == ids[:, None, :]
    return jnp.sum(jnp.where(same, jnp.einsum("btp,bsp->bts", g, g), 0), axis=(1, 2))


def mask_product_norm(ids: jax.Array, g: jax.Array) -> jax.Array:
    """The same without a Gram matrix: the mask is multiplied by the gradients."""
    same = (ids[:, :, None] == ids[:, None, :]).astype(g.dtype)
    return jnp.sum(jnp.einsum("bts,bsp->btp", same, g) * g, axis=(1, 2))


def operands(batch: int, tokens: int, p: int) -> tuple[jax.Array, jax.Array]:
    """Token frequencies as in text: few tokens make up most of it."""
    random = np.random.default_rng(0)
    ids = np.minimum(random.zipf(1.3, (batch, tokens)) - 1, VOCABULARY - 1).astype(np.int32)
    g = random.standard_normal((batch, tokens, p), np.float32)
    return jnp.asarray(ids), jnp.asarray(g)


def compiled(fun: Callable[..., Any], *arrays: Any) -> Callable[[], Any]:
    program = jax.jit(fun).lower(*arrays).compile()
    return lambda: program(*arrays)


def norms(batch: int, tokens: int, p: int, budget: float) -> None:
    arrays = operands(batch, tokens, p)
    ours = compiled(ops.embedding_norm, *arrays)
    case = f"norm B={batch} T={tokens} p={p}"
    show(f"{case}: A/A", ours, ours, budget)
    show(f"{case}: mask, Gram", compiled(mask_norm, *arrays), ours, budget)
    show(f"{case}: mask, product", compiled(mask_product_norm, *arrays), ours, budget)
    show(f"{case}: twin", compiled(embedding_norm_twin, *arrays), ours, budget)


def scatters(batch: int, tokens: int, p: int, budget: float) -> None:
    ids, g = operands(batch, tokens, p)
    factor = jnp.full(batch, 0.5)

    def zeros(ids: jax.Array, factor: jax.Array, g: jax.Array) -> jax.Array:
        return clipped_scatter_twin(ids, factor, g, jnp.zeros((VOCABULARY, p)))[0]

    def ours(ids: jax.Array, factor: jax.Array, g: jax.Array) -> jax.Array:
        return ops.clipped_scatter(ids, factor, g, VOCABULARY)

    case = f"scatter B={batch} T={tokens} p={p}"
    baseline, own = (compiled(f, ids, factor, g) for f in (zeros, ours))
    show(f"{case}: A/A", own, own, budget)
    show(f"{case}: XLA", baseline, own, budget)


def onto_head(batch: int, tokens: int, p: int, budget: float) -> None:
    """The table's gradient as a head is there already: in place, or as a second table that is added."""
    ids, g = operands(batch, tokens, p)
    factor, head = jnp.full(batch, 0.5), jnp.ones((VOCABULARY, p))

    def two(ids: jax.Array, factor: jax.Array, g: jax.Array, head: jax.Array) -> jax.Array:
        return 3 * head + clipped_scatter_twin(ids, factor, g, jnp.zeros((VOCABULARY, p)))[0]

    def ours(ids: jax.Array, factor: jax.Array, g: jax.Array, head: jax.Array) -> jax.Array:
        return ops.clipped_scatter(ids, factor, g, VOCABULARY, 3 * head)

    case = f"scatter onto head B={batch} T={tokens} p={p}"
    baseline, own = (compiled(f, ids, factor, g, head) for f in (two, ours))
    show(f"{case}: XLA", baseline, own, budget)


def crosses(batch: int, tokens: int, p: int, budget: float) -> None:
    ids, g = operands(batch, tokens, p)
    random = np.random.default_rng(1)
    left = jnp.asarray(random.standard_normal((batch, tokens, VOCABULARY), np.float32))
    right = jnp.asarray(random.standard_normal((batch, tokens, p), np.float32))
    arrays = (left, right, ids, g)
    ours, twin = compiled(ops.tied_cross, *arrays), compiled(tied_cross_twin, *arrays)
    case = f"cross B={batch} T={tokens} p={p}"
    show(f"{case}: A/A", ours, ours, budget)
    show(f"{case}: twin", twin, ours, budget)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budget", type=float, default=3, help="seconds for each comparison")
    budget = parser.parse_args().budget
    print(f"{describe()}\n{HEADER}")
    for batch, tokens in [(8, 100), (8, 256), (2, 1000)]:
        norms(batch, tokens, 768, budget)
    for batch, tokens in [(8, 100), (2, 1000)]:
        scatters(batch, tokens, 768, budget)
        onto_head(batch, tokens, 768, budget)
        crosses(batch, tokens, 768, budget)


if __name__ == "__main__":
    main()
