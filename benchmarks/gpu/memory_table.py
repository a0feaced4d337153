"""The paper's table of largest batches, predicted: steps compiled for an A100 that is not there.

    python tools/gpu_environment.py -m benchmarks.gpu.memory_table [--models gpt2] [--methods auto]

The device that they are compiled for has more memory than any of them takes: XLA would otherwise compute
parts of a step twice. Memory is then nearly a line in the batch: one compilation gives the line, one
more at the answer shows that it fits. What is found goes to docs/gpu_memory.json at once, and is not
compiled again; with `--by-line` nothing is compiled, and the line of what was gives an estimate.
`benchmarks.gpu.memory_document` writes the tables of docs/gpu.md from it.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from benchmarks.gpu.printed import MODELS, PRINTED
from benchmarks.gpu.programs import compile_step, make_mesh, missing
from benchmarks.steps import step_models

FILE = Path(__file__).resolve().parents[2] / "docs" / "gpu_memory.json"
# The devices have 42.5 and 85 GB; the rest is for the driver, libraries and what lies between arrays.
LIMITS = {"40": 40 * 10**9, "80": 80 * 10**9}
TOLERANCE = 0.02
GUESS = 1.8  # times the paper's batch without privacy, to begin with
ENDLESS = 1 << 42  # bytes of memory
ADAM_BYTES = 8  # two moments of a parameter, which live besides the step
LENGTHS = (4096, 8192)
Found = dict[str, Any]


class Line(NamedTuple):
    """Memory as a line in the batch."""

    start: float
    slope: float

    def largest(self, limit: float) -> int:
        """The largest batch below the limit.

        >>> Line(100, 7).largest(1000)
        128
        """
        return max(0, math.floor((limit - self.start) / self.slope))


def line_near(known: dict[int, int]) -> Line:
    """From what is left without examples, nearest to the compiled batches.

    >>> line_near({0: 100, 10: 170, 20: 240})
    Line(start=100, slope=7.0)
    """
    over = {batch: nbytes - known[0] for batch, nbytes in known.items()}
    products = sum(batch * nbytes for batch, nbytes in over.items())
    return Line(known[0], products / sum(batch**2 for batch in over))


def line_through(known: dict[int, int], one: int, two: int) -> Line:
    """Through two batches."""
    slope = (known[two] - known[one]) / (two - one)
    return Line(known[one] - slope * one, slope)


def largest_batch(memory: Callable[[int], int], known: dict[int, int], limit: float) -> int:
    """The largest batch that fits, compiled; `known` grows by what is compiled on the way.

    The answer fills the memory up to `TOLERANCE`, or is too small by `TOLERANCE` at most: XLA places
    arrays by rules of thumb, and memory is a line only nearly.
    """
    while True:
        good = max((batch for batch in known if known[batch] <= limit), default=0)
        bad = min((batch for batch in known if known[batch] > limit), default=math.inf)
        is_full = known[good] >= (1 - TOLERANCE) * limit
        if bad <= good or is_full or bad <= max(good + 1, (1 + TOLERANCE) * good):
            return good
        line = line_through(known, *((0, good) if bad == math.inf else (good, int(bad))))
        batch = line.largest(limit)
        if batch <= good:  # the line is bent
            batch = good + 1 if bad == math.inf else (good + int(bad)) // 2
        known[batch] = memory(batch)


def first_guess(model: str, method: str, plain: Found) -> int:
    """A batch to begin with, by the paper's ratio to the plain step's, if that is known."""
    printed = {name: one.batch for name, one in PRINTED[model].items()}
    smaller = printed[method] / printed["none"]
    return round(smaller * plain.get("largest", {}).get("40", GUESS * printed["none"]))


def examine(model: str, method: str, limit: str, row: dict[str, Found]) -> Found:
    """The largest batch of one method; `row` is what is known of the model."""
    before = row.get(method, {})
    name, sizes = MODELS[model]
    weights = _weights(model)

    def memory(batch: int) -> int:
        task = step_models.make(name, abstract=True, batch=batch, **sizes)
        found = compile_step(
            task, "plain" if method == "none" else method, make_mesh("a100", memory=ENDLESS)
        )
        print(f"{model} {method} B={batch}: {found.peak / 1e9:.2f} GB", flush=True)
        return found.peak + ADAM_BYTES * weights

    known = _known(model, before)
    if len(known) == 1:
        first = first_guess(model, method, row.get("none", {}))
        known[first] = memory(first)
    batch = largest_batch(memory, known, LIMITS[limit])
    written = {str(b): n for b, n in sorted(known.items()) if b}
    return {**before, "largest": {**before.get("largest", {}), limit: batch}, "bytes": written}


def estimate(model: str, limit: str, before: Found) -> int:
    """The largest batch by the line of the batches that fit into 40 GB, and of those that nearly do."""
    near = 1.1 * LIMITS["40"]
    known = {batch: n for batch, n in _known(model, before).items() if n <= near}
    return line_near(known).largest(LIMITS[limit])


def _known(model: str, before: Found) -> dict[int, int]:
    """Compiled batches, and none: parameters and gradients are left."""
    compiled = {int(batch): nbytes for batch, nbytes in before.get("bytes", {}).items()}
    return {0: (4 + 4 + ADAM_BYTES) * _weights(model), **compiled}


@functools.cache
def _weights(model: str) -> int:
    name, sizes = MODELS[model]
    task = step_models.make(name, abstract=True, batch=1, **sizes)
    return sum(math.prod(x.shape) for x in jax.tree.leaves(task.params))


def examine_length(length: int, method: str) -> Found:
    """Memory of one example of the model with 1.2 billion parameters, in bfloat16."""
    task = step_models.make("llama", abstract=True, length=length)
    name = "plain" if method == "none" else method
    found = compile_step(task, name, make_mesh("a100", memory=ENDLESS), dtype=jnp.bfloat16)
    widths = {size for x in jax.tree.leaves(task.params) for size in x.shape}
    squares = [i for i in found.module() for s in i.shape.arrays if s.dims.count(length) > 1]
    told_apart = length not in widths
    print(f"llama T={length} {method}: {found.peak / 1e9:.2f} GB", flush=True)
    return {
        "temporary": found.temporary,
        "peak": found.peak,
        "squares": len(squares) if told_apart else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--models", nargs="+", choices=[*PRINTED, "llama"], default=[*PRINTED, "llama"]
    )
    parser.add_argument("--methods", nargs="+", default=["none", "auto", "ghost_clip", "opacus"])
    parser.add_argument("--limits", nargs="+", choices=list(LIMITS), default=list(LIMITS))
    parser.add_argument("--by-line", action="store_true", help="compile nothing: 80 GB by 40 GB")
    parser.add_argument("--file", type=Path, default=FILE, help="what is known, and grows")
    arguments = parser.parse_args()
    file = arguments.file
    found = json.loads(file.read_text()) if file.exists() else {}
    every = itertools.product(arguments.limits, arguments.models, arguments.methods)
    if arguments.by_line:
        _add_estimates(found)
        file.write_text(json.dumps(found, indent=1) + "\n")
    elif reason := missing():
        print(f"memory_table: skipped, {reason}")
    else:
        _add_compiled(found, every, file)


def _add_estimates(found: Found) -> None:
    for model in PRINTED:
        for one in found.get(model, {}).values():
            one["by line"] = {"80": estimate(model, "80", one)}


def _add_compiled(found: Found, every: Iterable[tuple[str, str, str]], file: Path) -> None:
    found.setdefault("versions", {})["jax"] = jax.__version__
    for limit, model, method in every:
        if model == "llama":
            _add_lengths(found, method)
        elif limit not in (row := found.setdefault(model, {})).get(method, {}).get("largest", {}):
            row[method] = examine(model, method, limit, row)
        file.write_text(json.dumps(found, indent=1) + "\n")


def _add_lengths(found: Found, method: str) -> None:
    for length in LENGTHS:
        row = found.setdefault(f"llama T={length}", {})
        if method in ("none", "auto") and method not in row:
            row[method] = examine_length(length, method)


if __name__ == "__main__":
    main()
