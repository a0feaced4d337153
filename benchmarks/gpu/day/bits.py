"""Step 6: the same bits twice, on other streams, after other work, and recorded in a graph.

Kernels by the program `bits_check`; a whole private step by processes of their own, with XLA's command
buffers as they are, switched off, and around everything.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.gpu.day import command
from benchmarks.gpu.day.day import Day
from benchmarks.gpu.day.runner import Outcome

# Tuning by time may choose another product in another process: that is not what is asked here.
FIXED = "--xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true"
STEPS = {
    "as it is": "",
    "again": "",
    "no command buffers": "--xla_gpu_enable_command_buffer=",
    "command buffers around everything": "--xla_gpu_graph_min_graph_size=1",
}


def run(day: Day) -> Outcome:
    kernels = check_kernels(day)
    steps = [day.part(f"bits-{name}", lambda name=name: run_step(day, name)) for name in STEPS]
    bad = [
        f"{row['kernel']} {row['maker']} {row['type']} {row['shape']}: "
        f"{row['problem'] or row['different']}"
        for row in kernels["rows"]
        if row["problem"] or row["different"]
    ]
    bad += different_steps(steps)
    line = f"{len(kernels['rows'])} operations and {len(steps)} steps: equal bits"
    if bad:
        line = f"{len(bad)} differ, first: {bad[0]}"
    return Outcome(not bad, line, {"kernels": kernels, "steps": steps, "different": bad})


def check_kernels(day: Day) -> dict[str, Any]:
    out = day.folder / "bits_program.json"
    line = [
        day.program("bits_check"), f"--out={out}", f"--cublas={day.cublas}",
        f"--shapes={','.join(day.sizes.bits_shapes)}", f"--types={','.join(day.sizes.types)}",
    ]  # fmt: skip
    ran = command.run(line, day.log("bits"))
    if ran.code != 0:
        raise RuntimeError(f"bits_check: {ran.last_line()}")
    return json.loads(Path(out).read_text())


def run_step(day: Day, name: str) -> dict[str, Any]:
    """The hashes of a step's results, run twice within the process and after other work."""
    environment = day.environment(XLA_FLAGS=f"{FIXED} {STEPS[name]}".strip())
    line = [day.python, "-m", "benchmarks.gpu.day.step_worker"]
    given = json.dumps(day.sizes.model_sizes)
    ran = command.run(line, day.log("bits"), environment=environment, given=given)
    if ran.code != 0:
        return {"name": name, "error": ran.last_line(), "hashes": []}
    return {"name": name, "error": "", **json.loads(ran.out.splitlines()[-1])}


def different_steps(steps: list[dict[str, Any]]) -> list[str]:
    """Steps that failed, or whose bits are not those of the first hash."""
    first = next((one for step in steps for one in step["hashes"]), None)
    bad = [f"step, {step['name']}: {step['error']}" for step in steps if step["error"]]
    return bad + [
        f"step, {step['name']}: other bits" for step in steps if set(step["hashes"]) - {first}
    ]
