"""What Gaussian noise costs: `bk_jax.ops.gaussian` against adding `jax.random.normal`.

    bazel run //benchmarks/ops:noise_benchmark -- --values 10000000

Every candidate adds noise in place to an array that it owns (the argument is donated), as at the end
of a train step. Candidates run in one process, interleaved with `jax.random.normal`; a ratio is the
median over pairs of neighbours, with a 95 % interval. The row A/A compares `jax.random.normal` with
itself: differences of its size mean nothing.

On a busy machine time on the wall says little, most of all about short runs. So the table also has
the processor time of all threads, "cpu", and the ratio of these.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import bk_jax
from benchmarks.ops.machine import describe
from bk_jax.overhead.timing import compare


class InPlace:
    """Adds noise to its own array at every call."""

    def __init__(self, step: Callable[..., jax.Array], values: int, dtype: Any, key: Any) -> None:
        self.step = jax.jit(step, donate_argnums=0)
        self.array = jnp.zeros(values, dtype)
        self.key = key

    def __call__(self) -> jax.Array:
        self.array = self.step(self.array, self.key)
        return self.array


def plain(x: jax.Array, key: Any) -> jax.Array:
    return x + 0.5 * jax.random.normal(key, x.shape, x.dtype)


def ours(x: jax.Array, key: Any) -> jax.Array:
    return bk_jax.ops.gaussian(x, key, 0.5)


def candidates(values: int) -> dict[str, InPlace]:
    words = jax.random.key_data(bk_jax.random.key(0))
    made = {
        "jax.random.normal (A/A)": (plain, jnp.float32, jax.random.key(0)),
        "jax.random.normal, rbg": (plain, jnp.float32, jax.random.key(0, impl="rbg")),
        "jax.random.normal, ChaCha key": (plain, jnp.float32, bk_jax.random.key(0)),
        "bk_gaussian, float32": (ours, jnp.float32, words),
        "bk_gaussian, bfloat16": (ours, jnp.bfloat16, words),
    }
    return {name: InPlace(step, values, dtype, key) for name, (step, dtype, key) in made.items()}


def processor_seconds(*runs: InPlace) -> list[float]:
    """Medians over 20 interleaved calls of each, all threads together."""
    times = []
    for _ in range(20):
        for run in runs:
            start = time.process_time()
            jax.block_until_ready(run())
            times.append(time.process_time() - start)
    return [statistics.median(times[i :: len(runs)]) for i in range(len(runs))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--values", type=int, default=10_000_000, help="size of the array")
    parser.add_argument("--budget", type=float, default=10.0, help="seconds for each candidate")
    arguments = parser.parse_args()
    print(describe())
    base = InPlace(plain, arguments.values, jnp.float32, jax.random.key(0))
    print(f"\n{arguments.values:,} values, in ns per value; faster: than jax.random.normal")
    print(
        f"{'candidate':32} {'wall':>6} {'faster':>7}  {'95 % interval':14} {'cpu':>6} {'faster':>7}"
    )
    scale = 1e9 / arguments.values
    for name, run in candidates(arguments.values).items():
        c = compare(run, base, budget=arguments.budget)
        cpu, base_cpu = processor_seconds(run, base)
        interval = f"{c.low:.2f} .. {c.high:.2f}"
        print(
            f"{name:32} {scale * c.baseline:6.2f} {c.ratio:7.2f}  {interval:14} "
            f"{scale * cpu:6.2f} {base_cpu / cpu:7.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
