"""How benchmarks of operations print: the machine, one line per comparison, an A/A line first."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

from paired import Comparison, Run, compare

HEADER = f"{'case':44} {'baseline':>10} {'ours':>10} {'ours / baseline':>16}   95 % interval"


def machine() -> str:
    """The CPU's name, the number of cores that we may use, and the date."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0))
    return f"{names[0] if names else 'unknown'}, {cores} cores, {datetime.date.today()}"


def line(case: str, result: Comparison) -> str:
    """Medians in milliseconds and the median of paired ratios."""
    first, second = (f"{1e3 * t:.3f} ms" for t in (result.first, result.second))
    interval = f"[{result.low:.4f}, {result.high:.4f}]"
    return f"{case:44} {first:>10} {second:>10} {result.ratio:16.4f}   {interval}"


def show(case: str, baseline: Run, ours: Run, budget: float) -> None:
    """Compares and prints."""
    print(line(case, compare(baseline, ours, budget=budget)), flush=True)
