"""How well `explain` predicts what privacy costs: predicted and measured steps side by side.

    bazel run //benchmarks/steps:prediction_benchmark -- --models mlp gpt2 --budget 10
    python -m benchmarks.steps.prediction_benchmark --help

Each model is small enough for a step of a second or two. Steps run in one process, interleaved; a ratio
is the median over pairs of neighbours, with a 95 % interval. The error is that of the predicted ratio.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import bk_jax
from benchmarks.ops import machine
from benchmarks.steps import compiled, step_models
from bk_jax.overhead.timing import Timing, compare_all
from bk_jax.planning.explain import Explanation

SIZES: dict[str, dict[str, int]] = {
    "mlp": {},
    "gpt2": {"batch": 8, "length": 100, "depth": 2, "words": 8000},
    "roberta": {"batch": 4, "length": 256, "depth": 2, "words": 8000},
    "vit": {"batch": 4, "depth": 2},
    "beit_large": {"batch": 2, "depth": 2},
    "resnet18": {"batch": 4, "size": 112},
    "vgg11": {"batch": 4, "size": 64},
}
STEPS = {"auto": 0.0, "noise": 1.0}  # by name, with their noise multipliers


class Row(NamedTuple):
    """One private step of a model."""

    model: str
    step: str
    predicted: Explanation
    measured: Timing

    @property
    def error(self) -> float:
        """Of the predicted ratio, relative to the measured one."""
        return self.predicted.predicted_ratio / self.measured.ratio - 1


def measure(
    model: str, sizes: Mapping[str, int], budget: float, steps: Sequence[str] = tuple(STEPS)
) -> Iterator[Row]:
    """Rows of one model."""
    task = step_models.make(model, **sizes)
    task = step_models.on_device(task)
    plain = compiled.compile_step(task, "plain").run
    private = {name: compiled.compile_step(task, name).run for name in steps}
    timings = compare_all(plain, private, budget=budget)
    for name in steps:
        grad_fn = bk_jax.dp_value_and_grad(task.loss, noise_multiplier=STEPS[name])
        yield Row(model, name, grad_fn.explain(task.params, task.batch), timings[name])


HEADER = "| model | step | predicted | measured | error | predicted, ms | measured, ms |"


def text(row: Row) -> str:
    """A line of a table in Markdown; milliseconds are of the plain step and the private one."""
    p, m = row.predicted, row.measured
    step = {"auto": "without noise", "noise": "with noise"}[row.step]
    return (
        f"| {row.model} | {step} | {p.predicted_ratio:.3f} | "
        f"{m.ratio:.3f} ({m.low:.3f} .. {m.high:.3f}) | {100 * row.error:+.1f} % | "
        f"{1e3 * p.plain_seconds:.0f}, {1e3 * p.private_seconds:.0f} | "
        f"{1e3 * m.baseline:.0f}, {1e3 * m.seconds:.0f} |"
    )


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--models", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--budget", type=float, default=10.0, help="seconds of timing per model")
    parser.add_argument(
        "--calibrate", action="store_true", help="measure and store this machine's rates first"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None, sizes: Mapping[str, Any] = SIZES) -> None:
    options = parse(arguments)
    print(machine.describe())
    if options.calibrate:
        bk_jax.calibrate()
    print(HEADER)
    print("|---" * HEADER.count("| ") + "|", flush=True)
    for model in options.models:
        for row in measure(model, sizes[model], options.budget):
            print(text(row), flush=True)


if __name__ == "__main__":
    main()
