"""Step 4: how tensor cores add, and whether the bounds of norms may rest on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.gpu.day import command
from benchmarks.gpu.day.day import Day
from benchmarks.gpu.day.runner import Outcome

BROKEN = (
    "2"  # times the error that is assumed: an emulated tensor core of which the probe must say no
)


def run(day: Day) -> Outcome:
    found = probe(day, "probe")
    data: dict[str, Any] = {"device": found["device"], "types": found["types"]}
    fails = [f"{row['type']} ({row['holds']})" for row in found["types"] if row["holds"] != "yes"]
    line = "the assumption of the bounds holds"
    if fails:
        line = (
            f"the assumption is NOT SHOWN for {', '.join(fails)}: norms of these types are not "
            "certified on this GPU (docs/gpu_kernels.md, Numerics)"
        )
    if day.is_rehearsal:
        broken = probe(day, "probe_broken", f"--tensor_core_error={BROKEN}")
        data["broken"] = broken["types"]
        if any(row["holds"] != "no" for row in broken["types"]):
            return Outcome(False, "the probe does not see a tensor core that errs too much", data)
    return Outcome(not fails, line, data)


def probe(day: Day, name: str, *arguments: str) -> dict[str, Any]:
    out = day.folder / f"{name}_program.json"
    line = [day.program("rounding_probe"), f"--out={out}", f"--repeats={day.sizes.probes}"]
    ran = command.run([*line, *arguments], day.log("probe"))
    if ran.code != 0:
        raise RuntimeError(f"rounding_probe: {ran.last_line()}")
    return json.loads(Path(out).read_text())
