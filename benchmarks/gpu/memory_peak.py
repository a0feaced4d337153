"""What a step holds at the moment at which it holds most, by XLA's own account of live arrays.

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
from bk_jax import hlo

_LIVE = re.compile(r"^    (\S+)\{(\d*)\}: (\d+) bytes \(cumulative", re.MULTILINE)


class Live(NamedTuple):
    """A result of an instruction and its bytes; `index` is a number if there are several, or empty."""

    instruction: str
    index: str
    nbytes: int


def live_at_peak(dump: str) -> list[Live]:
    r"""From XLA's dump `*-live-range.txt`.

    >>> live_at_peak("  Live ranges at 3 (peak):\n    dot.1{0}: 8 bytes (cumulative: 8 bytes)\n")
    [Live(instruction='dot.1', index='0', nbytes=8)]
    """
    _, _, rest = dump.partition("(peak):\n")
    peak, _, _ = rest.partition("\n  Stack trace")
    return [Live(one[1], one[2], int(one[3])) for one in _LIVE.finditer(peak)]


def by_shape(live: Iterable[Live], module: hlo.Module) -> list[tuple[str, int, int]]:
    """Shape, how many arrays of it are alive, and their bytes; the most first."""
    shapes = {instruction.name: instruction.shape.arrays for instruction in module}
    counts: collections.Counter[str] = collections.Counter()
    nbytes: collections.Counter[str] = collections.Counter()
    for one in live:
        arrays = shapes[one.instruction]
        if one.index or len(arrays) == 1:  # otherwise it is a table of pointers
            shape = str(arrays[int(one.index or 0)])
            counts[shape] += 1
            nbytes[shape] += one.nbytes
    return [(shape, counts[shape], total) for shape, total in nbytes.most_common()]


def examine(model: str, method: str, batch: int) -> list[tuple[str, int, int]]:
    """Compiles the step, and reads what XLA wrote about it."""
    name, sizes = MODELS[model]
    task = step_models.make(name, abstract=True, batch=batch, **sizes)
    step = "plain" if method == "none" else method
    with tempfile.TemporaryDirectory() as folder:
        options = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
        found = compile_step(task, step, make_mesh("a100", memory=ENDLESS), options=options)
        (dump,) = Path(folder).glob("*-live-range.txt")
        return by_shape(live_at_peak(dump.read_text()), found.module())


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
