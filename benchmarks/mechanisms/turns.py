"""Everybody adds the noise of one step, in turns: what runs here, and what runs in another process.

A process of another environment prints its rows as one line of JSON. For every line that it reads, it
takes a turn of each row and prints their seconds. In between it waits, so only one of both works. In a
turn each row takes two steps and the second one counts: after somebody else's turn memory is cold.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from benchmarks.mechanisms.rows import Row, Spent

FIRST = 8  # turns that do not count: they compile, allocate and have fewer draws behind them


def clocked(run: Callable[[], Any]) -> tuple[Any, Spent]:
    """What it returns, and the time of all threads together and on the wall."""
    cpu, wall = time.process_time(), time.perf_counter()
    out = run()
    return out, Spent(time.process_time() - cpu, time.perf_counter() - wall)


class Here:
    """Candidates of this process (`ours.Candidate`)."""

    def __init__(self, candidates: Sequence[Any], size: int) -> None:
        import jax

        self.rows = [each.row for each in candidates]
        self.steps = [jax.jit(each.step, donate_argnums=(0, 1)) for each in candidates]
        self.states = [each.state for each in candidates]
        self.size, self.turns = size, 0

    def turn(self) -> list[Spent]:
        """Seconds of the second of two steps of each."""
        begin, spent = 2 * self.turns, []
        for i in range(len(self.steps)):
            self._step(i, begin)
            spent.append(self._step(i, begin + 1))
        self.turns += 1
        return spent

    def _step(self, i: int, number: int) -> Spent:
        """Zeros are made before the clock starts; numbers beyond the run have the work of its last."""
        import jax
        import jax.numpy as jnp

        arguments = jax.block_until_ready((jnp.zeros(self.size), self.states[i], number))
        out, spent = clocked(lambda: jax.block_until_ready(self.steps[i](*arguments)))
        self.states[i] = out[1]
        return spent


class There:
    """Rows of another process; `with` ends it."""

    def __init__(self, line: Sequence[str], environment: dict[str, str], size: int) -> None:
        self.process = subprocess.Popen(
            [*line, str(size)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.rows = [Row(**row) for row in self._read()]

    def turn(self) -> list[Spent]:
        """As above."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # then there is nothing to read either
            print(file=self.process.stdin, flush=True)
        return [Spent(*seconds) for seconds in self._read()]

    def _read(self) -> list[Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.__exit__()
            code = self.process.returncode
            raise RuntimeError(f"the other process ended with exit code {code}.")
        return json.loads(line)

    def __enter__(self) -> There:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(BrokenPipeError), self.process:
            pass  # closes what it reads and writes, and waits


class Times(NamedTuple):
    """Of one row: medians, and the median of its ratios to the first row of the same turn."""

    spent: Spent
    ratio: float


def measured(turns: Sequence[Sequence[Spent]]) -> list[Times]:
    """Of every row, without the first turns."""
    import numpy as np

    found = np.asarray(turns, np.float64)[FIRST:]  # turn, row, clock
    medians = np.median(found, axis=0)
    ratios = np.median(found[:, :, 0] / found[:, :1, 0], axis=0)
    return [Times(Spent(*m), float(r)) for m, r in zip(medians.tolist(), ratios, strict=True)]
