"""Many random programs, each against `vmap` of `grad` in float64; prints those that disagree.

    cd tests && python -m programs.campaign --count 5000

Program number n is always the same one. Chunks run in processes of their own, so that a crash of the
compiler costs one chunk and names the program that did it. Ends with the number of programs and exits
with 1 if any of them failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path

from support.quick import compile_quickly

CHUNK = 50
TESTS = Path(__file__).resolve().parents[1]


def check_programs(first: int, count: int) -> None:
    """One line per program, in this process: `n ok`, or `n FAILED` and what is known of it."""
    import jax

    from programs.generator import program_of_seed
    from programs.programs_test import check

    with jax.enable_x64(True):
        for number in range(first, first + count):
            print(number, end=" ", flush=True)
            program = program_of_seed(number, statements=3 + number % 5)
            try:
                check(program)
                print("ok", flush=True)
            except Exception:
                print(f"FAILED\n{program.source}\n{program}\n{traceback.format_exc()}", flush=True)


def run_chunk(first: int, count: int) -> tuple[int, str]:
    """The number of programs that agreed, and the output about those that did not."""
    command = [sys.executable, "-m", "programs.campaign", "--here"]
    command += ["--first", str(first), "--count", str(count)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        command, cwd=TESTS, env=environment, capture_output=True, text=True, check=False
    )
    good = sum(line.endswith(" ok") for line in done.stdout.splitlines())
    if done.returncode == 0:
        return good, "" if good == count else done.stdout
    return good, f"{done.stdout}\nended with {done.returncode}: {done.stderr[-2000:]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--count", type=int, default=1000, help="how many programs")
    parser.add_argument("--here", action="store_true", help="in this process, one line for each")
    arguments = parser.parse_args()
    if arguments.here:
        check_programs(arguments.first, arguments.count)
        return
    compile_quickly()
    good, start = 0, time.monotonic()
    for tried in range(0, arguments.count, CHUNK):
        size = min(CHUNK, arguments.count - tried)
        agreed, problems = run_chunk(arguments.first + tried, size)
        good += agreed
        minutes = (time.monotonic() - start) / 60
        print(f"{problems}{good} of {tried + size} agree, {minutes:.0f} min", flush=True)
    sys.exit(good != arguments.count)


if __name__ == "__main__":
    main()
