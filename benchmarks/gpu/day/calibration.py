"""Step 7: the rates of the device for the planner, stored where `bk_jax` reads them."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.gpu.day import command
from benchmarks.gpu.day.day import Day
from benchmarks.gpu.day.runner import Outcome

MEASURE = """
import dataclasses, json, sys
import bk_jax
from bk_jax.planning import machine_rates
rates = bk_jax.calibrate(budget=float(sys.argv[1]))
print(json.dumps({"file": str(machine_rates.current_path()), "rates": dataclasses.asdict(rates)}))
"""
READ = """
import bk_jax
bk_jax.diagnose()
"""


def run(day: Day) -> Outcome:
    measured = _python(day, MEASURE, str(day.sizes.calibration_seconds))
    found = json.loads(measured.splitlines()[-1])
    diagnosis = _python(day, READ)
    row = rates_row(diagnosis)
    source = found["rates"]["source"]
    day.store.save("rates", {"rehearsal": day.is_rehearsal, **found})
    data: dict[str, Any] = {**found, "diagnosis": row, "is_scratch": bool(day.cache)}
    if source not in row:
        return Outcome(False, f"diagnose() shows {row!r}, not {source!r}", data)
    return Outcome(True, f"{source}, read back by diagnose()", data)


def rates_row(diagnosis: str) -> str:
    r"""The line of `bk_jax.diagnose()` about rates.

    >>> rates_row("bk_jax  0.1.0\nrates   calibrated on x")
    'calibrated on x'
    """
    lines = [line for line in diagnosis.splitlines() if line.startswith("rates ")]
    return lines[0].removeprefix("rates").strip() if lines else ""


def _python(day: Day, code: str, *arguments: str) -> str:
    more = {"XDG_CACHE_HOME": day.cache} if day.cache else {}
    line = [day.python, "-c", code, *arguments]
    ran = command.run(line, day.log("calibration"), environment=day.environment(**more))
    if ran.code != 0:
        raise RuntimeError(ran.last_line())
    return ran.out
