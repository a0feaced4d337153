"""How long it takes to trace and to lower a private step, over the step that is not private.

    bazel run //benchmarks/trace:trace_benchmark -- mlp --leaves 10 100 1000 5000

Plain is `jax.value_and_grad` of the same loss. The private step clips and adds noise. Each row is the
shortest of `--repeats` in one process, after a step of 10 leaves that fills JAX's own caches. The
exponent is the growth of the private time from one row to the next: 1 is proportional to the leaves.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

import bk_jax
from benchmarks.trace import many_leaves

HEADER = ("model", "leaves", "plain", "private", "ratio", "exponent", "lower", "private", "ratio")
WIDTHS = (12, 6, 7, 7, 5, 8, 7, 7, 5)


class Times(NamedTuple):
    """Seconds to trace, and to lower after that."""

    trace: float
    lower: float


def plain(task: many_leaves.Task) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return jax.value_and_grad(task.loss), task.args


def private(task: many_leaves.Task) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    grad_fn = bk_jax.dp_value_and_grad(task.loss)

    def step(key: jax.Array, *args: Any) -> Any:
        return grad_fn(*args, key=key)

    return step, (bk_jax.random.key(0), *task.args)


def measure(function: Callable[..., Any], args: Sequence[Any], lowers: bool) -> Times:
    """One trace of a function that JAX has not seen yet."""
    start = time.process_time()
    traced = jax.jit(function).trace(*args)
    middle = time.process_time()
    if lowers:
        traced.lower()
    return Times(middle - start, time.process_time() - middle)


def shortest(make_step: Any, name: str, leaves: int, repeats: int, lowers: bool) -> Times:
    runs = [
        measure(*make_step(many_leaves.make(name, leaves)), lowers=lowers) for _ in range(repeats)
    ]
    return Times(min(run.trace for run in runs), min(run.lower for run in runs))


def print_row(cells: Sequence[str]) -> None:
    first, *rest = (cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True))
    print(" ".join([first.strip().ljust(WIDTHS[0]), *rest]), flush=True)


def table(name: str, counts: Sequence[int], repeats: int, lowers: bool) -> None:
    """One row for each number of leaves; the last ratio is that of tracing and lowering together."""
    before: tuple[int, float] | None = None
    for leaves in counts:
        ours = shortest(private, name, leaves, repeats, lowers)
        theirs = shortest(plain, name, leaves, repeats, lowers)
        cells = [name, str(leaves), f"{theirs.trace:.3f}", f"{ours.trace:.3f}"]
        cells += [f"{ours.trace / theirs.trace:.2f}", _exponent(before, leaves, ours.trace)]
        cells += [f"{theirs.lower:.3f}", f"{ours.lower:.3f}", f"{sum(ours) / sum(theirs):.2f}"]
        print_row(cells)
        before = leaves, ours.trace


def _exponent(before: tuple[int, float] | None, leaves: int, seconds: float) -> str:
    if before is None or before[0] == leaves:
        return ""
    return f"{math.log(seconds / before[1]) / math.log(leaves / before[0]):.2f}"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "models", nargs="*", help=f"of {', '.join(many_leaves.MODELS)}; default all"
    )
    parser.add_argument("--leaves", type=int, nargs="+", default=[10, 100, 1000, 5000])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--no-lower", action="store_true", help="trace only")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    print_row(HEADER)
    for name in arguments.models or many_leaves.MODELS:
        for make_step in (plain, private):
            shortest(make_step, name, 10 + 4, 1, not arguments.no_lower)
        table(name, arguments.leaves, arguments.repeats, not arguments.no_lower)


if __name__ == "__main__":
    main()
