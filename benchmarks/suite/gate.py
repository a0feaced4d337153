"""Regression gate: a few small comparisons against stored counts and ratios.

    bazel run //benchmarks/suite:gate
    bazel run //benchmarks/suite:gate -- --counts      # compiles only, half a minute
    bazel run //benchmarks/suite:gate -- --update      # stores what this machine finds now

Counts of compiled steps come first (counts.py says which): they are exact. Then steps are timed. Only
ratios are stored, for each instruction set: times belong to one machine. A ratio is too high when
the lower end of its interval is above the stored one by more than `--tolerance`; it is then measured
again, up to `--tries` times, and fails only if it is too high every time. A machine whose A/A
comparison is wider than the tolerance cannot tell, and says so.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from typing import Any

from benchmarks.suite import child, counts
from benchmarks.suite.comparisons import Comparison, read
from benchmarks.suite.readings import noise_floor, timed
from bk_jax import _native

TABLE = child.WORKSPACE / "benchmarks" / "ratios.json"
COUNTS = child.WORKSPACE / "benchmarks" / "counts.json"
Ratios = dict[str, dict[str, float]]  # comparison, step


def instruction_set() -> str:
    module = _native.library().module
    return module.active_isa() if module is not None else "none"


def too_high(result: dict[str, Any], stored: dict[str, float], tolerance: float) -> list[str]:
    """Steps that are slower than stored, beyond interval and tolerance; what was not measured counts."""
    steps, found = timed(result), []
    for name, ratio in stored.items():
        if name not in steps:
            found.append(f"{name}: not measured, stored {ratio:.3f}")
        elif steps[name]["low"] > ratio * (1 + tolerance):
            found.append(against(name, steps[name], ratio))
    return found


def against(name: str, step: dict[str, Any], stored: float) -> str:
    interval = f"{step['low']:.3f} .. {step['high']:.3f}"
    return f"{name}: {step['ratio']:.3f} ({interval}), stored {stored:.3f}"


def measure(comparison: Comparison) -> dict[str, Any]:
    result = child.run(comparison, child.WORKSPACE)
    if "error" in result:
        sys.exit(f"{comparison.name}: {result['error']}")
    return result


def check(comparison: Comparison, stored: dict[str, float], tolerance: float, tries: int) -> bool:
    """Whether the comparison passes; prints why."""
    if not stored:
        print(f"unknown {comparison.name}: nothing is stored; measure a good commit with --update")
        return False
    for attempt in range(1, tries + 1):
        result = measure(comparison)
        wrong = too_high(result, stored, tolerance)
        if not wrong:
            steps = timed(result)
            found = [against(name, steps[name], ratio) for name, ratio in stored.items()]
            print(f"ok      {comparison.name}: {'; '.join(found)}", flush=True)
            return True
        floor = noise_floor(result)
        quiet = "" if floor < tolerance else f"; this machine is noisy: A/A {floor:.2f}"
        print(f"slow    {comparison.name}, try {attempt}: {'; '.join(wrong)}{quiet}", flush=True)
    return False


def count(one: Comparison) -> dict[str, Any]:
    """What is in the compiled steps of a comparison."""
    return measure(dataclasses.replace(one, kind="counts"))["steps"]


def check_counts(wanted: list[Comparison], isa: str) -> bool:
    stored = counts.read(COUNTS).get(counts.key(isa), {})
    passed = [counts.check(one.name, count(one), stored.get(one.name, {})) for one in wanted]
    return all(passed)


def update_counts(wanted: list[Comparison], isa: str) -> None:
    """Stores the counts of this machine beside those of others."""
    table, where = counts.read(COUNTS), counts.key(isa)
    known = {one.name for one in read("check")}
    kept = {name: found for name, found in table.get(where, {}).items() if name in known}
    found = {one.name: count(one) for one in wanted}
    counts.write(COUNTS, {**table, where: {**kept, **found}})
    print(f"counted {', '.join(found)} for {where}", flush=True)


def update(wanted: list[Comparison], isa: str, table: dict[str, Ratios]) -> None:
    """Stores the ratios of this machine beside those of other instruction sets."""
    found: Ratios = {}
    for one in wanted:
        steps = timed(measure(one))
        found[one.name] = {n: round(s["ratio"], 3) for n, s in steps.items() if n != "plain"}
        print(f"stored  {one.name}: {found[one.name]}", flush=True)
    known = {one.name for one in read("check")}
    kept = {name: ratios for name, ratios in table.get(isa, {}).items() if name in known}
    stored = {**table, isa: {**kept, **found}}
    TABLE.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--update", action="store_true", help="store the ratios of this machine")
    parser.add_argument(
        "--counts", action="store_true", help="what is exact alone, nothing is timed"
    )
    parser.add_argument("--tolerance", type=float, default=0.1, help="how much slower is allowed")
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--only", default="", help="comparisons whose name contains this")
    arguments = parser.parse_args()
    isa, wanted = instruction_set(), [one for one in read("check") if arguments.only in one.name]
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    if arguments.update:
        update_counts(wanted, isa)
        if not arguments.counts:
            update(wanted, isa, table)
        return
    exact = check_counts(wanted, isa)
    if arguments.counts:
        sys.exit(0 if exact else 1)
    if isa not in table:
        sys.exit(f"no ratios are stored for {isa}: measure a good commit with --update first")
    passed = [check(one, table[isa].get(one.name, {}), arguments.tolerance, arguments.tries)
              for one in wanted]  # fmt: skip
    sys.exit(0 if exact and all(passed) else 1)


if __name__ == "__main__":
    main()
