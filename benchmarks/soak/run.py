"""Soak: a run of `fit` that is broken off again and again, and must come out as if it never had been.

    python -m benchmarks.soak.run                          # 10,000 steps, 60 faults: ten minutes
    python -m benchmarks.soak.run --steps 200 --faults 3 --kinds kill

Faults come at random steps: kill -9, a full disk, a read-only checkpoint folder, jumps of the clock by
up to ten years, SIGTERM. After each, a new process goes on with `forfeit=True`. The end says what
happened and what was proved (benchmarks/soak/proof.py); the exit code is 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.soak import faults, life, proof

PATIENCE = 300.0  # seconds for a process to end after a fault
YEARS = 10 * 365 * 86400.0


class Soak:
    """One run, its faults, and where it is kept."""

    def __init__(self, place: Path, steps: int, every: int, seed: int) -> None:
        self.steps, self.every, self.random = steps, every, random.Random(seed)
        self.switches, self.disk = faults.Switches(), faults.Disk(place / "disk")
        self.folder, self.log, self.result = (
            place / "disk" / "run",
            place / "log",
            place / "end.npz",
        )
        self.errors = place / "errors"
        self.happened: Counter[str] = Counter()
        self.seen = self.count = 0  # of the log: bytes that were read, steps in them

    def taken(self) -> int:
        """Steps that were handed out so far; those of killed processes too."""
        if self.log.exists():
            with self.log.open("rb") as log:
                log.seek(self.seen)
                text = log.read()
            self.seen, self.count = self.seen + len(text), self.count + text.count(b"take")
        return self.count

    def begin(self) -> int:
        where = (self.folder, self.log, self.result)
        return life.begin(self.errors, *where, self.steps, self.every, self.switches)

    def go(self, count: int, kinds: list[str]) -> None:
        """Lives, faults between them, and a last life that nothing disturbs."""
        marks = sorted(self.random.sample(range(1, self.steps), count))
        process = self.begin()
        for number, mark in enumerate(marks):
            kind = kinds[number] if number < len(kinds) else self.random.choice(kinds)  # each once
            if not self.wait(process, mark):
                return
            if self.strike(kind, process):
                process = self.begin()
            print(f"{self.taken():6d} steps: {kind}", flush=True)
        self.end(process, expected=(0,))

    def wait(self, process: int, mark: int) -> bool:
        """Until so many steps are taken; False if the run is over before."""
        while self.taken() < mark:
            found, status = os.waitpid(process, os.WNOHANG)
            if found:
                self.check(os.waitstatus_to_exitcode(status), (0,))
                return False
            time.sleep(0.005)
        time.sleep(self.random.uniform(0, 0.02))  # anywhere in a step, a checkpoint or a report
        return True

    def strike(self, kind: str, process: int) -> bool:
        """Lets it happen; whether the process is gone."""
        self.happened[kind] += 1
        if kind == "clock":
            self.switches.clock = self.random.uniform(-YEARS, YEARS)
            return False
        if kind in ("kill", "stop"):
            os.kill(process, signal.SIGKILL if kind == "kill" else signal.SIGTERM)
            self.end(process, expected=(0, -signal.SIGKILL))
            return True
        broken = (
            self.disk.full(self.switches)
            if kind == "full disk"
            else faults.read_only(self.switches)
        )
        with broken:
            self.end(process, expected=(0, life.EXPECTED))
        return True

    def end(self, process: int, expected: tuple[int, ...]) -> None:
        """Waits for its end, which must be one of those."""
        limit = time.monotonic() + PATIENCE
        found, status = os.waitpid(process, os.WNOHANG)
        while not found:
            if time.monotonic() > limit:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                sys.exit(f"a process did not end within {PATIENCE:.0f} s")
            time.sleep(0.005)
            found, status = os.waitpid(process, os.WNOHANG)
        self.check(os.waitstatus_to_exitcode(status), expected)

    def check(self, code: int, expected: tuple[int, ...]) -> None:
        if code not in expected:
            print(self.errors.read_text()[-4000:], file=sys.stderr)
            sys.exit(
                f"a process ended with {code} at step {self.taken()}; its last words are above"
            )

    def finish(self) -> None:
        """One more life if the last one was stopped by a fault just before the end."""
        if not self.result.exists():
            self.end(self.begin(), expected=(0,))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--kinds", nargs="+", choices=faults.KINDS, default=list(faults.KINDS))
    parser.add_argument("--checkpoint-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="decides when which fault comes")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    started, place = time.monotonic(), Path(tempfile.mkdtemp(prefix="soak"))
    life.prepare(arguments.steps, place / "programs")
    soak = Soak(place, arguments.steps, arguments.checkpoint_every, arguments.seed)
    try:
        soak.go(arguments.faults, arguments.kinds)
        soak.finish()
        story, problems = proof.problems_of(soak.log, soak.result, soak.folder, arguments.steps)
    finally:
        soak.disk.close()
        shutil.rmtree(place, ignore_errors=True)
    disk = "a real full disk" if soak.disk.is_real else "a full disk by injection"
    what = ", ".join(f"{number} x {kind}" for kind, number in sorted(soak.happened.items()))
    print(
        f"{arguments.steps} steps in {story.lives} processes ({what}; {disk}), {len(story.lost)} steps "
        f"forfeited, {time.monotonic() - started:.0f} s"
    )
    if problems:
        sys.exit("\n".join(problems))
    print("no key was used twice; epsilon and parameters are those of the uninterrupted run")


if __name__ == "__main__":
    main()
