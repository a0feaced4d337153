"""Runs steps one after the other: what fails does not stop the rest, what is done is not repeated."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from benchmarks.gpu.day.day import Day

PASSED, FAILED, ERROR = "passed", "failed", "error"


class Outcome(NamedTuple):
    """What a step returns: whether all is well, one line for people, numbers for the report."""

    ok: bool
    line: str
    data: dict[str, Any]


class Step(NamedTuple):
    """A step, by the name of its file."""

    name: str
    title: str
    run: Callable[[Day], Outcome]


def is_done(day: Day, step: Step) -> bool:
    """Passed, on the same kind of day. A failed step is worth another try."""
    stored = day.store.load(step.name)
    return stored.get("status") == PASSED and stored.get("key") == day.key()


def run_step(day: Day, step: Step) -> dict[str, Any]:
    """Runs it and stores what came out, also if that is an exception."""
    start = time.time()
    try:
        outcome = step.run(day)
        status = PASSED if outcome.ok else FAILED
        line, data = outcome.line, outcome.data
    except Exception as error:
        status, data = ERROR, {}
        line = f"{type(error).__name__}: {error}".splitlines()[0]
        with day.log(step.name).open("a") as log:
            log.write(traceback.format_exc())
    result = {
        "step": step.name, "title": step.title, "status": status, "line": line,
        "key": day.key(), "began": start, "seconds": time.time() - start, "data": data,
    }  # fmt: skip
    day.store.save(step.name, result)
    return result


def run_all(day: Day, steps: Sequence[Step], show: Callable[[Step, dict[str, Any]], None]) -> bool:
    """Whether all of them have passed, now or before."""
    all_well = True
    for step in steps:
        kept = is_done(day, step)
        result = day.store.load(step.name) if kept else run_step(day, step)
        show(step, {**result, "kept": kept})
        all_well &= result["status"] == PASSED
    return all_well
