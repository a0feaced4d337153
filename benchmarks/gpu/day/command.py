"""Runs a command and keeps what it printed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.gpu.day.day import ROOT

NOT_FOUND = 127  # as shells have it
TIMED_OUT = 124


class Ran(NamedTuple):
    """Its exit code, standard output, standard error and seconds."""

    code: int
    out: str
    err: str
    seconds: float

    def last_line(self) -> str:
        """The last thing that it said, for a message."""
        lines = [line for line in (self.err + "\n" + self.out).splitlines() if line.strip()]
        said = [line for line in self.err.splitlines() if line.strip()] or lines
        return said[-1].strip() if said else f"exit code {self.code}, nothing printed"


def run(
    line: Sequence[str | Path],
    log: Path,
    *,
    environment: dict[str, str] | None = None,
    given: str | None = None,
    timeout: float = 3600.0,
) -> Ran:
    """Never raises because of the command: a missing one has the code 127, a slow one 124."""
    words = [str(word) for word in line]
    start = time.perf_counter()
    try:
        done = subprocess.run(
            words, cwd=ROOT, env=environment, input=given, capture_output=True, text=True,
            timeout=timeout, check=False,
        )  # fmt: skip
        code, out, err = done.returncode, done.stdout, done.stderr
    except FileNotFoundError:
        code, out, err = NOT_FOUND, "", f"{words[0]} was not found"
    except subprocess.TimeoutExpired:
        code, out, err = TIMED_OUT, "", f"{words[0]} took more than {timeout:.0f} s"
    ran = Ran(code, out, err, time.perf_counter() - start)
    with log.open("a") as file:
        file.write(f"$ {' '.join(words)}\n{out}{err}exit code {code}, {ran.seconds:.1f} s\n\n")
    return ran
