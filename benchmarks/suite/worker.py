"""One comparison in a process of its own: reads it as JSON, prints the result as JSON.

    echo '{"name": ..., "kind": "time", ...}' | python worker.py

A step that would need more memory than the machine has is compiled, not run. Steps that are the same
program (methods that choose alike for this model) are compiled and timed once.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax

from benchmarks.ops.resident import peak_while
from benchmarks.steps import step_models
from benchmarks.steps.compiled import Compiled, trace_step
from benchmarks.suite.comparisons import Comparison, as_result, from_dict
from benchmarks.suite.largest import largest_batch
from bk_jax.overhead.timing import compare_all

SHARE = 0.7  # of the memory that is free: what a step may need


def available() -> int:
    """Bytes that this machine can still give."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def describe_compiled(step: Compiled) -> dict[str, Any]:
    keys = ("trace", "compile", "temporary", "peak")
    return {key: getattr(step, key) for key in keys}


class Programs(NamedTuple):
    """Every program once, and the steps that are the same program as an earlier one."""

    compiled: dict[str, Compiled]
    same: dict[str, str]


def compile_all(comparison: Comparison, abstract: bool) -> Programs:
    task = step_models.make(comparison.model, abstract=abstract, **comparison.sizes)
    if not abstract:
        task = step_models.on_device(task)
    found, first = Programs({}, {}), dict[str, str]()
    for name in ("plain", *comparison.steps):
        traced = trace_step(task, name)
        twin = first.setdefault(traced.fingerprint(), name)
        if twin == name:
            found.compiled[name] = traced.compile()
        else:
            found.same[name] = twin
    return found


def with_twins(
    comparison: Comparison, steps: dict[str, dict[str, Any]], same: dict[str, str]
) -> dict[str, Any]:
    """The result: all steps in the order that was asked for."""
    for name, twin in same.items():
        steps[name] = {**steps[twin], "same_as": twin}
    return {"steps": {name: steps[name] for name in ("plain", *comparison.steps)}}


def time_all(
    comparison: Comparison, compiled: dict[str, Compiled], steps: dict[str, dict[str, Any]]
) -> dict[str, Callable[[], Any]]:
    """Times the programs that fit into memory, adds what it found to `steps`, returns those that ran."""
    room = SHARE * available()
    runs = {name: step.run for name, step in compiled.items() if step.peak < room}
    for name in compiled.keys() - runs.keys():
        steps[name]["skipped"] = f"needs {compiled[name].peak / 1e9:.1f} GB"
    timed = compare_all(
        compiled["plain"].run, runs,
        budget=comparison.budget, least=comparison.least,
    )  # fmt: skip
    for name, timing in timed.items():
        steps[name] |= as_result(timing)
        run = runs[name]
        steps[name]["resident"] = peak_while(lambda run=run: jax.block_until_ready(run()))
    return runs


def measure_time(comparison: Comparison) -> dict[str, Any]:
    programs = compile_all(comparison, abstract=False)
    steps = {name: describe_compiled(step) for name, step in programs.compiled.items()}
    time_all(comparison, programs.compiled, steps)
    return with_twins(comparison, steps, programs.same)


def measure_memory(comparison: Comparison) -> dict[str, Any]:
    programs = compile_all(comparison, abstract=True)
    steps = {name: describe_compiled(step) for name, step in programs.compiled.items()}
    return with_twins(comparison, steps, programs.same)


def measure_largest(comparison: Comparison) -> dict[str, Any]:
    peaks: dict[str, int] = {}

    def memory(name: str, batch: int) -> int:
        sizes = {**comparison.sizes, "batch": batch}
        task = step_models.make(comparison.model, abstract=True, **sizes)
        traced = trace_step(task, name)
        key = traced.fingerprint()
        if key not in peaks:
            peaks[key] = traced.compile().peak
        return peaks[key]

    steps = {}
    for name in ("plain", *comparison.steps):
        batch = largest_batch(lambda batch, name=name: memory(name, batch), comparison.limit)
        steps[name] = {"batch": batch}
    return {"steps": steps}


MEASURE = {"time": measure_time, "memory": measure_memory, "largest": measure_largest}


def main() -> None:
    comparison = from_dict(json.load(sys.stdin))
    print(json.dumps(MEASURE[comparison.kind](comparison)))


if __name__ == "__main__":
    main()
