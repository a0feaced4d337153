"""Mechanisms side by side: exactness, epsilon, what is kept between steps, and time of a step's noise.

    python tools/peers.py
    PYTHONPATH=python:. .venv-peers-jax/bin/python benchmarks/mechanisms/noise_table.py

The environment is that of jax_privacy; in another one its rows are left out. Opacus runs in a process of
its own, from `.venv-peers-torch`; without it, its rows are left out. What is missing is said on standard
error. All add the noise of a step to one float32 array, in turns.

| column | is |
|---|---|
| off | the largest distance of the noise of 12 steps from `C^-1` times its draws in float64, in deviations of a draw |
| normal | Kolmogorov-Smirnov distance of the twelfth step from its Gaussian, times the root of 100,000 values; 1.63 is rare |
| epsilon, theirs | by the library's own accounting |
| epsilon, here | from what is shown, computed here in closed form (`exactness.py`) |
| kept | bytes of state between steps, keys and constants too, in copies of the array |
| cpu, wall | medians, of all threads and by the clock on the wall |
| ratio | of processor time to that of the first row, median over turns |

Draws are Gaussians rounded to float32, so independent noise is off by nothing: a draw is the noise. That
draws are Gaussian is the next column. Noise on a grid is a discrete Gaussian: integers, exact.
"""  # noqa: E501  (a table)

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.util
import sys
from pathlib import Path
from typing import Any

from benchmarks.mechanisms import ours, rows
from benchmarks.mechanisms.turns import FIRST, Here, There, Times, measured
from benchmarks.suite import child
from bk_jax.planning.machine_rates import cpu_name

# Threads of OpenMP spin while they wait, and processor time counts it: here 16 ns for a value, not 3.
SLEEP = {"OMP_WAIT_POLICY": "passive"}


def missing(what: str) -> None:
    print(f"{what} is not there, its rows are left out; run tools/peers.py", file=sys.stderr)


def here(size: int) -> Here:
    """Ours, and jax_privacy's if it is installed."""
    candidates = ours.candidates(size)
    if importlib.util.find_spec("jax_privacy"):
        from benchmarks.mechanisms import theirs

        candidates += theirs.candidates(size)
    else:
        missing("jax_privacy")
    return Here(candidates, size)


def others(workspace: Path, size: int) -> list[There]:
    """Opacus', if its environment was made."""
    line = child.peer("torch", "torch_noise", workspace)
    if not Path(line[0]).exists():
        missing(child.ENVIRONMENTS["torch"])
        return []
    return [There(line, {**child.environment("torch"), **SLEEP}, size)]


def measure(groups: list[Any], rounds: int) -> list[Times]:
    """All rows of all groups, in turns."""
    turns = [[spent for group in groups for spent in group.turn()] for _ in range(rounds + FIRST)]
    return measured(turns)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=1_000_000, help="parameters")
    parser.add_argument("--rounds", type=int, default=101)
    options = parser.parse_args()
    size = options.size
    with contextlib.ExitStack() as stack:
        groups = [here(size), *map(stack.enter_context, others(child.WORKSPACE, size))]
        found = measure(groups, options.rounds)
    print(f"{cpu_name()}, {datetime.date.today()}, {size:,} parameters, {options.rounds} rounds\n")
    print(rows.HEAD)
    for row, times in zip([row for group in groups for row in group.rows], found, strict=True):
        print(rows.line(row, times.spent, times.ratio, size))


if __name__ == "__main__":
    main()
