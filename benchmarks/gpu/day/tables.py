"""Step 8: the paper's tables, each (model, method) in a process of its own, with pinned precision."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.gpu.day import command
from benchmarks.gpu.day.day import Day
from benchmarks.gpu.day.runner import Outcome
from benchmarks.gpu.paper_worker import Job
from benchmarks.gpu.printed import PRINTED

TIMEOUT = 3600.0


def run(day: Day) -> Outcome:
    rows = [
        day.part(f"tables-{job.name()}", lambda job=job: measure(day, job)) for job in jobs(day)
    ]
    failed = [f"{row['model']} {row['method']}: {row['error']}" for row in rows if row["error"]]
    line = f"{len(rows) - len(failed)} of {len(rows)} steps ran"
    if failed:
        line += f"; first that did not: {failed[0]}"
    return Outcome(not failed, line, {"rows": beside(rows)})


def jobs(day: Day) -> list[Job]:
    """The plain step and ours of every model first: a day may end early."""
    sizes = day.sizes
    first = [method for method in ("none", "auto") if method in sizes.methods]
    later = [method for method in sizes.methods if method not in first]
    return [
        Job(model, method, dtype, "float32", sizes.model_sizes, sizes.batch_limit)
        for methods in (first, later)
        for dtype in sizes.dtypes
        for model in sizes.models
        for method in methods
    ]


def measure(day: Day, job: Job) -> dict[str, Any]:
    """What the worker printed; memory is that of its process alone."""
    environment = day.environment(XLA_PYTHON_CLIENT_MEM_FRACTION="0.95")
    line = [day.python, "-m", "benchmarks.gpu.paper_worker"]
    ran = command.run(
        line, day.log("tables"), environment=environment, given=json.dumps(job._asdict()),
        timeout=TIMEOUT,
    )  # fmt: skip
    blank = {**job._asdict(), "batch": None, "throughput": None, "peak_bytes": None}
    if ran.code != 0:
        return {**blank, "error": ran.last_line()}
    return {**blank, "error": "", **json.loads(ran.out.splitlines()[-1])}


def beside(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each row with its ratio to the plain step, and with what the paper printed."""
    plain = {
        (row["model"], row["dtype"]): row["throughput"] for row in rows if row["method"] == "none"
    }
    found = []
    for row in rows:
        base = plain.get((row["model"], row["dtype"]))
        slower = base / row["throughput"] if base and row["throughput"] else None
        printed = PRINTED[row["model"]]
        paper = printed.get(row["method"])
        found.append({
            **row, "slower": slower,
            "paper_batch": paper.batch if paper else None,
            "paper_throughput": paper.throughput if paper else None,
            "paper_slower": printed["none"].throughput / paper.throughput if paper else None,
        })  # fmt: skip
    return found
