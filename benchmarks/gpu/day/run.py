"""`make gpu-day`: all that needs a GPU, in one command, with one report at the end.

    python -m benchmarks.gpu.day.run --rehearse      the same on the emulated device

Results are kept in out/gpu-day (a rehearsal: out/gpu-day-rehearsal). Type it again to go on: steps that
have passed are not repeated.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu.day import (
    bits,
    calibration,
    check,
    device_tests,
    prepare,
    probe,
    report,
    runner,
    sanitizer,
    sweep,
    tables,
)  # fmt: skip
from benchmarks.gpu.day.day import FULL, QUICK, REHEARSAL, ROOT, Day, on_gpu, rehearsal
from benchmarks.gpu.day.runner import Step
from benchmarks.suite.progress import Progress

STEPS = (
    Step("prepare", "Environment and programs", prepare.run),
    Step("check", "Driver, toolkit and device", check.run),
    Step("device_tests", "Tests on the device", device_tests.run),
    Step("probe", "Rounding of tensor cores", probe.run),
    Step("bits", "Bits, streams and graphs", bits.run),
    Step("sweep", "Kernels beside cublasLt", sweep.run),
    Step("tables", "The paper's tables", tables.run),
    Step("calibration", "Rates for the planner", calibration.run),
    Step("sanitizer", "compute-sanitizer", sanitizer.run),
)
NAMES = [step.name for step in STEPS]


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    day = make_day(options)
    if not day.is_rehearsal and (missing := check.missing(day)):
        print(f"gpu-day: {missing}; rehearse it without one: make gpu-day REHEARSE=1")
        return 1
    for name in options.again:
        day.store.forget(name)
    chosen = [step for step in STEPS if not options.only or step.name in options.only]
    start = time.time()
    with Progress([step.title for step in chosen]) as progress:
        all_well = runner.run_all(day, chosen, lambda *done: progress.advance(line_of(*done)))
    path = report.write(day, STEPS, options.predicted)
    note = f" ({REHEARSAL})" if day.is_rehearsal else ""
    print(f"{(time.time() - start) / 60:.1f} minutes; the report is {path}{note}")
    return 0 if all_well else 2


def line_of(step: Step, result: dict[str, Any]) -> str:
    """What came out of a step."""
    how = "kept" if result.get("kept") else f"{result['seconds']:.0f} s"
    return f"{step.name:<12} {result['status']:<7} {how:>6}  {result['line']}"


def make_day(options: argparse.Namespace) -> Day:
    if options.rehearse:
        return rehearsal(options.folder or ROOT / "out" / "gpu-day-rehearsal")
    return on_gpu(options.folder or ROOT / "out" / "gpu-day", QUICK if options.quick else FULL)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rehearse", action="store_true", help="on the emulated device")
    parser.add_argument("--quick", action="store_true", help="an hour instead of a day")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=[], help="these steps")
    parser.add_argument("--again", nargs="+", choices=NAMES, default=[], help="also if they passed")
    parser.add_argument("--folder", type=Path, help="of results")
    parser.add_argument(
        "--predicted", type=Path, default=report.PREDICTIONS, help="JSON of benchmarks/gpu/cycles"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
