"""What a private train step costs: its time and memory over the step that is not private.

    bazel run //benchmarks/steps:step_benchmark -- gpt2 --batch 8 --length 100

Candidates run in one process, interleaved; a ratio is the median over pairs of neighbours, with a 95 %
interval. The row A/A compares the plain step with itself: differences of its size mean nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.ops import machine
from benchmarks.steps import compiled, step_models
from bk_jax.overhead.timing import compare

Step = compiled.Compiled
NAMES = {"without noise": "auto", "with noise": "noise"}


def candidates(task: step_models.Task, names: list[str]) -> dict[str, Step]:
    """The steps to compare with the plain one."""
    steps = {}
    for name in names:
        steps[name] = compiled.compile_step(task, NAMES.get(name, name))
        report(f"compiled {name}")
    return steps


def report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


HEADER = ("step", "seconds", "ratio", "95 % interval", "temp", "trace", "XLA")
WIDTHS = (18, 8, 6, 14, 6, 6, 6)


def print_row(cells: Sequence[str]) -> None:
    first, *rest = (cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True))
    print(" ".join([first.strip().ljust(WIDTHS[0]), *rest]), flush=True)


def table(plain: Step, steps: dict[str, Step], budget: float, rounds: int) -> None:
    """One row per step; all but the seconds are ratios to the plain step."""
    print_row(HEADER)
    for name, step in {"A/A": plain, **steps}.items():
        memory = step.temporary / max(plain.temporary, 1)
        costs = (memory, step.trace / plain.trace, step.compile / plain.compile)
        times = ["", "", ""]
        if budget > 0:
            c = compare(plain.run, step.run, budget=budget, rounds=rounds)
            times = [f"{c.seconds:.3f}", f"{c.ratio:.3f}", f"{c.low:.3f} .. {c.high:.3f}"]
        print_row([name, *times, *[f"{cost:.2f}" for cost in costs]])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", choices=sorted(step_models.MODELS))
    parser.add_argument("--batch", type=int, help="examples in a batch")
    parser.add_argument("--length", type=int, help="tokens of an example (gpt2, roberta)")
    parser.add_argument("--depth", type=int, help="layers (mlp) or blocks (transformers)")
    parser.add_argument(
        "--budget", type=float, default=60.0, help="seconds per comparison; 0: compile only"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="rounds of two pairs per comparison, at least"
    )
    parser.add_argument(
        "--steps", nargs="+", default=["without noise", "with noise", "tf_privacy"],
        help="'without noise', 'with noise', or a method by name",
    )  # fmt: skip
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    if arguments.budget > 0:
        print(machine.describe())
    sizes = {name: getattr(arguments, name) for name in ("batch", "length", "depth")}
    sizes = {name: size for name, size in sizes.items() if size is not None}
    task = step_models.make(arguments.model, **sizes)
    task = step_models.on_device(task)
    plain = compiled.compile_step(task, "plain")
    report(f"compiled the plain step: {plain.temporary / 1e6:.0f} MB of temporaries")
    table(plain, candidates(task, arguments.steps), arguments.budget, arguments.rounds)


if __name__ == "__main__":
    main()
