"""What a step holds at the moment at which it holds most, by XLA's own plan of its memory.

    python tools/gpu_environment.py -m benchmarks.gpu.memory_peak gpt2 auto --batch 149

Arrays of one shape are counted together: `24 x f32[149,100,3072] 4.39 GB`. The step is compiled for an
A100 with endless memory, as those of `benchmarks.gpu.memory_table` are.
"""

from __future__ import annotations

import argparse
import collections
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from benchmarks.gpu.memory_table import ENDLESS
from benchmarks.gpu.printed import MODELS
from benchmarks.gpu.programs import compile_step, make_mesh, missing
from benchmarks.steps import step_models

_ALLOCATION = re.compile(r"^allocation (\d+):")
_VALUE = re.compile(r" value: <\d+ ([^\s{]+)\{?(\d*)\}? @0> \(size=(\d+),offset=(\d+)\): ([^({]+)")
_RANGE = re.compile(r"^    ([^\s{]+)\{(\d*)\}:(\d+)-(\d+)$", re.MULTILINE)


class Array(NamedTuple):
    """An array in XLA's plan: where it lies, and the first and last instruction while it is there."""

    shape: str
    place: tuple[int, int]  # allocation, offset
    nbytes: int
    first: int
    last: int


def planned_arrays(assignment: str, ranges: str) -> list[Array]:
    """From XLA's dumps `*-buffer-assignment.txt` and `*-live-range.txt`; tables of pointers left out."""
    lives = {(one[1], one[2]): (int(one[3]), int(one[4])) for one in _RANGE.finditer(ranges)}
    arrays, allocation = [], -1
    for line in assignment.splitlines():
        if begins := _ALLOCATION.match(line):
            allocation = int(begins[1])
        elif value := _VALUE.match(line):
            name, index, nbytes, offset, shape = value.groups()
            if life := lives.get((name, index)):  # others are numbers inside of a reduction
                arrays.append(Array(shape, (allocation, int(offset)), int(nbytes), *life))
    return arrays


def fullest_moment(arrays: Iterable[Array]) -> list[Array]:
    """What is alive when most memory is taken; of arrays in one place, as after an update, the first."""
    arrays = list(arrays)
    moments = {one.first for one in arrays}
    return max((_alive(arrays, moment) for moment in moments), key=_taken)


def _alive(arrays: Iterable[Array], moment: int) -> list[Array]:
    places: dict[tuple[int, int], Array] = {}
    for one in arrays:
        if one.first <= moment <= one.last:
            places.setdefault(one.place, one)
    return list(places.values())


def _taken(arrays: Iterable[Array]) -> int:
    return sum(one.nbytes for one in arrays)


def by_shape(arrays: Iterable[Array]) -> list[tuple[str, int, int]]:
    """Shape, how many arrays of it there are, and their bytes; the most first."""
    counts: collections.Counter[str] = collections.Counter()
    nbytes: collections.Counter[str] = collections.Counter()
    for one in arrays:
        counts[one.shape] += 1
        nbytes[one.shape] += one.nbytes
    return [(shape, counts[shape], total) for shape, total in nbytes.most_common()]


def read_dumps(folder: Path) -> list[tuple[str, int, int]]:
    """What is alive at the peak of the program whose dumps are there."""
    texts = [
        next(folder.glob(f"*-{kind}.txt")).read_text()
        for kind in ("buffer-assignment", "live-range")
    ]
    return by_shape(fullest_moment(planned_arrays(*texts)))


def examine(model: str, method: str, batch: int) -> list[tuple[str, int, int]]:
    """Compiles the step, and reads what XLA wrote about it."""
    name, sizes = MODELS[model]
    task = step_models.make(name, abstract=True, batch=batch, **sizes)
    step = "plain" if method == "none" else method
    with tempfile.TemporaryDirectory() as folder:
        options = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
        compile_step(task, step, make_mesh("a100", memory=ENDLESS), options=options)
        return read_dumps(Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=list(MODELS))
    parser.add_argument("method", nargs="+", help="none, auto, ghost_clip, opacus")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--rows", type=int, default=20)
    arguments = parser.parse_args()
    if reason := missing():
        print(f"memory_peak: skipped, {reason}")
        return
    for method in arguments.method:
        rows = examine(arguments.model, method, arguments.batch)
        total = sum(nbytes for _, _, nbytes in rows)
        print(f"{arguments.model} {method} B={arguments.batch}: {total / 1e9:.2f} GB", flush=True)
        for shape, count, nbytes in rows[: arguments.rows]:
            print(f"  {count:4} x {shape:32} {nbytes / 1e9:6.2f} GB", flush=True)


if __name__ == "__main__":
    main()
