"""Runs a list of comparisons, each in a process of its own, and writes benchmarks/REPORT.md.

    bazel run //benchmarks/suite:run -- --profile quick
    bazel run //benchmarks/suite:run -- --profile full --resume
    bazel run //benchmarks/suite:run -- --profile quick --scale 0.5 --only gpt2 --into ~/half

Results are kept as benchmarks/report/results/*.json, one for each comparison; `--resume` skips those
that are there. The report is made of all results that belong to a profile.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.suite import child, document, estimate
from benchmarks.suite.comparisons import Comparison, read, scaled
from benchmarks.suite.progress import Progress
from benchmarks.suite.provenance import provenance
from benchmarks.suite.store import Result, Store

PROFILES = ("quick", "full", "peers")  # what a report is made of


def outcome(result: Result) -> str:
    """One line about a result."""
    if "error" in result:
        return result["error"]
    if "stopped" in result:
        return f"stopped {result['stopped']} with {len(result['steps'])} steps"
    steps = result["steps"]
    for name in ("auto", "bk_jax"):
        if "ratio" in steps.get(name, {}):
            return f"{name} {steps[name]['ratio']:.3f} of the plain step"
    return f"{len(steps)} steps"


def run_all(wanted: list[Comparison], store: Store, resume: bool) -> None:
    """Runs what is to do; every result is on disk before the next begins."""
    todo = [one for one in wanted if not (resume and store.done(one))]
    if not todo:
        print("nothing is left to do")
        return
    print(estimate.describe(todo, store), flush=True)
    origin = provenance(child.WORKSPACE)
    with Progress([one.name for one in todo]) as progress:
        for one in todo:
            start = time.perf_counter()
            result = child.run(one, child.WORKSPACE)
            took = time.perf_counter() - start
            store.save(one, result | origin | {"took": round(took, 1)})
            progress.advance(f"{one.name}: {outcome(result)}, {took:.0f} s")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", default="quick", help="a file of configs/benchmarks")
    parser.add_argument("--only", default="", help="comparisons whose name contains this")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies batch, length, depth")
    parser.add_argument("--resume", action="store_true", help="skip results that are there")
    parser.add_argument("--report", action="store_true", help="run nothing, write the report")
    parser.add_argument(
        "--into", type=Path, default=child.WORKSPACE / "benchmarks", help="a folder"
    )
    return parser.parse_args()


def known(profile: str = "quick", scale: float = 1.0) -> list[Comparison]:
    """What a report is made of: all profiles, and the one that ran if it is another."""
    names = [*PROFILES, *({profile} - set(PROFILES))]
    return [scaled(one, scale) for name in names for one in read(name)]


def main() -> None:
    arguments = parse()
    store = Store(arguments.into / "report" / "results")
    wanted = [scaled(one, arguments.scale) for one in read(arguments.profile)]
    wanted = [one for one in wanted if arguments.only in one.name]
    if not arguments.report:
        run_all(wanted, store, arguments.resume)
    print(document.write(store.results(known(arguments.profile, arguments.scale)), arguments.into))


if __name__ == "__main__":
    main()
