"""One comparison in a process of its own: reads it as JSON, prints the result as JSON.

    echo '{"name": ..., "kind": "time", ...}' | python worker.py

A step that would need more memory than the machine has is compiled, not run. Steps that are the same
program (methods that choose alike for this model) are compiled and timed once. What is known is printed
after every step, one JSON object to a line; the last line is all of it.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any, NamedTuple

import jax

from benchmarks.ops.resident import peak_while
from benchmarks.steps import step_models
from benchmarks.steps.compiled import Compiled, trace_step
from benchmarks.suite.comparisons import Comparison, as_result, from_dict
from benchmarks.suite.counts import count_program
from benchmarks.suite.largest import largest_batch
from bk_jax.overhead.timing import compare_all

SHARE = 0.7  # of the memory that is free: what a step may need


def available() -> int:
    """Bytes that this machine can still give, with those that compiling has left behind."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def describe_compiled(step: Compiled) -> dict[str, Any]:
    known = {key: getattr(step, key) for key in ("trace", "compile", "temporary", "peak")}
    return {key: value for key, value in known.items() if value is not None}


class Programs(NamedTuple):
    """Every program once, and the steps that are the same program as an earlier one."""

    compiled: dict[str, Compiled]
    same: dict[str, str]


def report(steps: dict[str, dict[str, Any]]) -> None:
    """For whoever stops this process."""
    print(json.dumps({"steps": steps}), flush=True)


def compile_all(comparison: Comparison, abstract: bool) -> Programs:
    task = step_models.make(comparison.model, abstract=abstract, **comparison.sizes)
    if not abstract:
        task = step_models.on_device(task)
    found, first = Programs({}, {}), dict[str, str]()
    for name in ("plain", *comparison.steps):
        traced = trace_step(task, name)
        twin = first.setdefault(traced.fingerprint(), name)
        if twin == name:
            found.compiled[name] = traced.compile(to_run=not abstract)
        else:
            found.same[name] = twin
        report(compiled_alone(found))
    return found


def compiled_alone(programs: Programs) -> dict[str, dict[str, Any]]:
    """What is known before the first run."""
    late = {"skipped": "no time left"}
    steps = {name: describe_compiled(step) | late for name, step in programs.compiled.items()}
    return steps | {name: {**steps[twin], "same_as": twin} for name, twin in programs.same.items()}


def not_run(comparison: Comparison, same: dict[str, str]) -> set[str]:
    """Programs that are compiled alone: those of which no step is to run."""
    running = {"plain", *comparison.steps} - set(comparison.compiled)
    return set(comparison.compiled) - {same.get(name, name) for name in running}


def with_twins(
    comparison: Comparison, steps: dict[str, dict[str, Any]], same: dict[str, str]
) -> dict[str, Any]:
    """The result: all steps in the order that was asked for."""
    for name, twin in same.items():
        steps[name] = {**steps[twin], "same_as": twin}
    return {"steps": {name: steps[name] for name in ("plain", *comparison.steps)}}


def time_all(
    comparison: Comparison,
    compiled: dict[str, Compiled],
    steps: dict[str, dict[str, Any]],
    without: Set[str] = frozenset(),
) -> dict[str, Callable[[], Any]]:
    """Times the programs that fit into memory, adds what it found to `steps`, returns those that ran."""
    room = SHARE * available()
    needs = {name: step.peak - step.given for name, step in compiled.items()}
    fits = {name: step.run for name, step in compiled.items() if needs[name] < room}
    for name in compiled.keys() - fits.keys():
        steps[name]["skipped"] = f"needs {needs[name] / 1e9:.1f} GB more"
    runs = {name: run for name, run in fits.items() if name not in without}
    for name in fits.keys() - runs.keys():
        steps[name]["skipped"] = "compiled only"
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
    time_all(comparison, programs.compiled, steps, not_run(comparison, programs.same))
    return with_twins(comparison, steps, programs.same)


def measure_memory(comparison: Comparison) -> dict[str, Any]:
    programs = compile_all(comparison, abstract=True)
    steps = {name: describe_compiled(step) for name, step in programs.compiled.items()}
    return with_twins(comparison, steps, programs.same)


def measure_counts(comparison: Comparison) -> dict[str, Any]:
    """Of every step by itself, twins too."""
    task = step_models.make(comparison.model, abstract=True, **comparison.sizes)
    steps = {}
    for name in ("plain", *comparison.steps):
        program = trace_step(task, name).lowered.compile()
        steps[name] = count_program(program, program.memory_analysis().temp_size_in_bytes)
        report(steps)
    return {"steps": steps}


def measure_largest(comparison: Comparison) -> dict[str, Any]:
    peaks: dict[str, int] = {}

    def memory(name: str, batch: int) -> int:
        sizes = {**comparison.sizes, "batch": batch}
        task = step_models.make(comparison.model, abstract=True, **sizes)
        traced = trace_step(task, name)
        key = traced.fingerprint()
        if key not in peaks:
            peaks[key] = traced.compile(to_run=False).peak
        return peaks[key]

    steps: dict[str, dict[str, Any]] = {}
    for name in ("plain", *comparison.steps):
        known: dict[int, int] = {}  # of all limits
        batches: list[int] = []
        for limit in comparison.limits:

            def seen(batch: int, name: str = name, known: dict[int, int] = known) -> int:
                known[batch] = memory(name, batch)
                return known[batch]

            batches.append(largest_batch(seen, limit, known=known))
        steps[name] = {"batches": batches}
        report(steps)
    return {"steps": steps}


MEASURE = {
    "time": measure_time,
    "memory": measure_memory,
    "counts": measure_counts,
    "largest": measure_largest,
}


def main() -> None:
    comparison = from_dict(json.load(sys.stdin))
    print(json.dumps(MEASURE[comparison.kind](comparison)))


if __name__ == "__main__":
    main()
