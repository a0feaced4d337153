"""Soak: eight threads of private steps in one process, whose memory must stay flat.

    python -m benchmarks.soak.threads --minutes 60

Each thread takes steps of a program of its own, with noise and its own keys, so that custom calls, their
scratch memory and the noise of several steps are alive at once. Every result is compared with the
first one of its key, bit by bit. Resident memory is read once a second; the exit code is 1 if it grew
from the first tenth of the time to the last by more than `--growth` megabytes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import bk_jax
from benchmarks.steps import step_models

WARM = 3  # steps of a thread before memory counts
SHAPES = ({"batch": 8, "width": 96}, {"batch": 5, "width": 64})
Step = Callable[[int], bytes]


def resident() -> float:
    """Megabytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def make_step(number: int) -> Step:
    """A private step of a small model: its gradients' bits, for a key of that number."""
    if number % 4 == 3:
        task = step_models.make("gpt2", batch=2, length=12, depth=1, d=64, words=50)
    else:
        task = step_models.make("mlp", depth=2, **SHAPES[number % 2])
    grad_fn = jax.jit(bk_jax.dp_value_and_grad(task.loss, noise_multiplier=1.0))
    task = step_models.on_device(task)

    def step(key: int) -> bytes:
        _, grads = grad_fn(task.params, task.batch, key=bk_jax.random.key(key))
        return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(grads))

    return step


class Workers:
    """Threads that take steps until they are told to stop."""

    def __init__(self, count: int) -> None:
        self.steps, self.wrong = [0] * count, list[str]()
        self.stop, self.warm = threading.Event(), threading.Barrier(count + 1)
        self.threads = [threading.Thread(target=self._work, args=(i,)) for i in range(count)]

    def _work(self, index: int) -> None:
        try:
            step = make_step(index)
            first = [step(key) for key in range(WARM)]
            self.warm.wait()
            while not self.stop.is_set():
                key = self.steps[index] % WARM
                if step(key) != first[key]:
                    self.wrong.append(f"thread {index}, step {self.steps[index]}: other bits")
                self.steps[index] += 1
        except Exception as error:
            self.wrong.append(f"thread {index}: {type(error).__name__}: {error}")
            self.warm.abort()

    def run(self, seconds: float) -> list[float]:
        """Resident memory over that time, a reading a second, at least twenty."""
        for thread in self.threads:
            thread.start()
        found: list[float] = []
        try:
            self.warm.wait()
            end = time.monotonic() + seconds
            while time.monotonic() < end and not self.wrong:
                time.sleep(min(1.0, seconds / 20))
                found.append(resident())
        except threading.BrokenBarrierError:
            pass
        self.stop.set()
        for thread in self.threads:
            thread.join()
        return found


def growth(readings: list[float]) -> float:
    """Megabytes between the medians of the first tenth and of the last.

    >>> growth([100.0, 100.0, 100.0, 160.0, 100.0, 100.0, 100.0, 100.0, 100.0, 103.0])
    3.0
    """
    tenth = max(1, len(readings) // 10)
    return statistics.median(readings[-tenth:]) - statistics.median(readings[:tenth])


def problems_of(workers: Workers, readings: list[float], limit: float) -> list[str]:
    grown: list[Any] = [growth(readings)] if readings else []
    return workers.wrong + [f"memory grew by {mb:.1f} MB" for mb in grown if mb > limit]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--growth", type=float, default=32.0, help="megabytes that are allowed")
    arguments = parser.parse_args()
    workers = Workers(arguments.threads)
    readings = workers.run(60 * arguments.minutes)
    problems = problems_of(workers, readings, arguments.growth)
    if readings:
        print(
            f"{sum(workers.steps)} steps in {arguments.threads} threads, resident memory "
            f"{readings[0]:.0f} MB, at most {max(readings):.0f}, grown by {growth(readings):.1f}"
        )
    if problems:
        sys.exit("\n".join(problems))
    print("the same bits in every thread, memory flat")


if __name__ == "__main__":
    main()
