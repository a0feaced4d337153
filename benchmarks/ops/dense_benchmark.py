"""The custom calls of dense layers against the same arithmetic in plain JAX.

    bazel run //benchmarks/ops:dense_benchmark -- --budget 3

Candidates alternate in one process, so ratios can be trusted more than times. A ratio above 1 means
that the custom call is faster; the A/A row compares XLA with itself and shows what chance does. GF/s
counts useful flop: ghost norm `T (T + 1) (d + p)` per example, products `2 T d p`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.ops.machine import describe, xla_gemm
from bk_jax import _native, ops
from bk_jax.overhead.timing import Clock, Timing, compare


class Case(NamedTuple):
    """One row of the table: a custom call, what it is compared with, and its useful flop."""

    name: str
    ours: Callable[..., Any]
    baseline: Callable[..., Any]
    operands: tuple[jax.Array, ...]
    flop: float


def normal(*shape: int) -> jax.Array:
    """Never zeros: some clocks rise when nothing toggles."""
    random = np.random.default_rng(sum(shape))
    return jnp.asarray(random.standard_normal(shape, dtype=np.float32))


def two_einsums(a: jax.Array, g: jax.Array) -> jax.Array:
    """The ghost norm in plain JAX."""
    gram_a = jnp.einsum("bntd,bnsd->bnts", a, a)
    return jnp.sum(gram_a * jnp.einsum("bntp,bnsp->bnts", g, g), (1, 2, 3))


def weight_gradient(a: jax.Array, g: jax.Array) -> jax.Array:
    """What ordinary training computes."""
    return jnp.einsum("bntd,bntp->ndp", a, g)


def scaled_gradient(a: jax.Array, factor: jax.Array, g: jax.Array) -> jax.Array:
    """The clipped sum in plain JAX."""
    return jnp.einsum("bntd,bntp->ndp", a, factor[:, None, None, None] * g)


def gradients_and_squares(a: jax.Array, g: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Per-example gradients and their norms in plain JAX."""
    grads = jnp.einsum("bntd,bntp->bndp", a, g)
    return grads, jnp.sum(jnp.square(grads), (1, 2, 3))


def cases(kinds: set[str]) -> Iterator[Case]:
    """All rows; arrays live as long as their row."""
    shapes = {
        "ghost_norm": [(16, 100, 768, 3072), (8, 100, 768, 768), (4, 256, 1024, 4096),
                       (2, 1000, 768, 3072), (128, 1, 1000, 1000)],
        "direct_norm": [(8, 100, 768, 3072), (8, 100, 768, 768), (4, 256, 768, 3072),
                        (2, 1000, 768, 3072)],
        "clipped_gemm": [(8, 100, 768, 768), (8, 100, 768, 2304), (8, 100, 768, 3072),
                         (8, 100, 3072, 768), (8, 100, 768, 50257), (128, 1, 1000, 1000)],
        "per_sample_grad": [(8, 100, 768, 768), (4, 100, 768, 3072), (2, 1000, 768, 3072),
                            (32, 1, 1000, 1000)],
        "weighted_sum": [(8, 1, 768, 768), (4, 1, 768, 3072), (32, 1, 1000, 1000)],
    }  # fmt: skip
    for kind in sorted(kinds & shapes.keys()):
        for shape in shapes[kind]:
            yield case(kind, *shape)


def case(kind: str, batch: int, t: int, d: int, p: int) -> Case:
    """One row."""
    name = f"{kind} B={batch} T={t} {d}x{p}"
    factor = jnp.linspace(0.1, 1.0, batch)
    product = 2.0 * batch * t * d * p
    if kind == "weighted_sum":
        grads = normal(batch, d, p)
        return Case(
            f"{kind} B={batch} {d}x{p}", ops.weighted_sum,
            lambda c, g: jnp.einsum("b,bdp->dp", c, g), (factor, grads), 2.0 * grads.size,
        )  # fmt: skip
    a, g = normal(batch, 1, t, d), normal(batch, 1, t, p)
    if kind == "clipped_gemm":
        return Case(name, ops.clipped_gemm, scaled_gradient, (a, factor, g), product)
    if kind == "direct_norm":
        return Case(name, ops.direct_norm, weight_gradient, (a, g), product)
    if kind == "per_sample_grad":
        return Case(name, ops.per_sample_grad, gradients_and_squares, (a, g), product)
    return Case(name, ops.ghost_norm, two_einsums, (a, g), 1.0 * batch * t * (t + 1) * (d + p))


def run(row: Case, budget: float, clock: Clock) -> Timing:
    """Times the custom call (first) and its baseline (second)."""
    ours, baseline = jax.jit(row.ours), jax.jit(row.baseline)
    return compare(
        lambda: ours(*row.operands), lambda: baseline(*row.operands), budget=budget, clock=clock
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=3.0, help="seconds per row")
    parser.add_argument(
        "--clock", choices=["wall", "cpu"], default="wall",
        help="cpu adds up the time of all threads: for a machine that is not idle",
    )  # fmt: skip
    parser.add_argument(
        "--kinds", nargs="+", metavar="KIND",
        default=["ghost_norm", "direct_norm", "clipped_gemm", "per_sample_grad", "weighted_sum"],
    )  # fmt: skip
    arguments = parser.parse_args()
    if _native.library().module is None:
        parser.error(f"the native library is not there: {_native.library().problem}")
    clock = time.process_time if arguments.clock == "cpu" else time.perf_counter
    gemm = xla_gemm(arguments.budget, clock)
    print(f"{describe(gemm)}\n{arguments.clock} time\n")
    print(
        "| call | ms | GF/s | over XLA's gemm | plain JAX, ms | ratio | 95 % |\n" + "|---" * 7 + "|"
    )
    for row in cases(set(arguments.kinds)):
        timed = run(row, arguments.budget, clock)
        speed = row.flop / timed.baseline / 1e9
        print(
            f"| {row.name} | {1e3 * timed.baseline:.2f} | {speed:.1f} | {speed / gemm.rate:.2f} "
            f"| {1e3 * timed.seconds:.2f} | {timed.ratio:.2f} | {timed.low:.2f}-{timed.high:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
