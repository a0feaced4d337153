"""The paper's table of largest batches, predicted: steps compiled for an A100 that is not there.

    python tools/gpu_programs.py -m benchmarks.gpu.memory_table [--models gpt2] [--methods auto]

The device that they are compiled for has more memory than any of them takes: XLA would otherwise compute
parts of a step twice. Memory is then nearly a line in the batch. Two compilations give the line, one more at each answer shows that
it fits. Everything that is found goes to docs/gpu_memory.json at once; what is there is not compiled
again. `benchmarks.gpu.memory_document` writes the tables of docs/gpu.md from it.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
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


def line_through(known: dict[int, int], limit: float) -> Line:
    """Through the two batches whose memory is closest to the limit."""
    one, two = sorted(known, key=lambda batch: abs(known[batch] - limit))[:2]
    slope = (known[two] - known[one]) / (two - one)
    return Line(known[one] - slope * one, slope)


def largest_batch(memory: Callable[[int], int], known: dict[int, int], limit: float) -> int:
    """The largest batch that fits, compiled; `known` grows by what is compiled on the way.

    The answer is right by the line through the nearest batches, or too small by `TOLERANCE` at most:
    XLA places arrays by rules of thumb, and more examples may happen to need a little less.
    """
    while True:
        batch = line_through(known, limit).largest(limit)
        good = max((b for b in known if known[b] <= limit), default=0)
        bad = min((b for b in known if known[b] > limit and b > good), default=math.inf)
        if batch in (good, bad) or bad <= max(good + 1, (1 + TOLERANCE) * good):
            return good
        between = good < batch < bad
        batch = batch if between else (good + int(min(bad, 2 * good + 2))) // 2
        known[batch] = memory(batch)


def examine(model: str, method: str) -> Found:
    """Largest batches of one method, and what they follow from."""
    name, sizes = MODELS[model]
    mesh = make_mesh("a100", memory=ENDLESS)

    def memory(batch: int) -> int:
        task = step_models.make(name, abstract=True, batch=batch, **sizes)
        found = compile_step(task, "plain" if method == "none" else method, mesh)
        print(f"{model} {method} B={batch}: {found.peak / 1e9:.2f} GB", flush=True)
        weights = sum(math.prod(x.shape) for x in jax.tree.leaves(task.params))
        return found.peak + ADAM_BYTES * weights

    first = PRINTED[model][method].batch
    known = {batch: memory(batch) for batch in (first, 2 * first)}
    batches = {name: largest_batch(memory, known, limit) for name, limit in LIMITS.items()}
    return {"largest": batches, "bytes": {str(b): n for b, n in sorted(known.items())}}


def examine_length(length: int, method: str) -> Found:
    """Memory of one example of the model with 1.2 billion parameters, in bfloat16."""
    task = step_models.make("llama", abstract=True, length=length)
    name = "plain" if method == "none" else method
    found = compile_step(task, name, make_mesh("a100", memory=ENDLESS), dtype=jnp.bfloat16)
    squares = [i for i in found.module() for s in i.shape.arrays if s.dims.count(length) > 1]
    print(f"llama T={length} {method}: {found.peak / 1e9:.2f} GB", flush=True)
    return {"temporary": found.temporary, "peak": found.peak, "squares": len(squares)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=[*PRINTED, "llama"], default=[*PRINTED, "llama"])
    parser.add_argument("--methods", nargs="+", default=["none", "auto", "ghost_clip", "opacus"])
    arguments = parser.parse_args()
    if reason := missing():
        print(f"memory_table: skipped, {reason}")
        return
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    found.setdefault("versions", {})["jax"] = jax.__version__
    for model in arguments.models:
        for method in arguments.methods:
            _add(found, model, method)


def _add(found: Found, model: str, method: str) -> None:
    """Compiles what is not known yet, and writes it down."""
    if model == "llama":
        jobs = {f"{model} T={n}": (examine_length, n) for n in LENGTHS if method != "ghost_clip"}
    else:
        jobs = {model: (examine, model)}
    for row, (job, argument) in jobs.items():
        if method not in found.setdefault(row, {}):
            found[row][method] = job(argument, method)
            FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
