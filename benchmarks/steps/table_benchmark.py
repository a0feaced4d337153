"""The table of docs/performance.md: what private steps of many models cost, in one run.

    python -m benchmarks.steps.table_benchmark [--rows mlp_64 resnet18] [--budget 20] [--into table.md]

Each row is a process of its own. In it every step runs between two runs of the plain one
(`jax.value_and_grad` of the same loss) and is divided by their mean; a ratio is the median over turns,
with a 95 % interval. A/A is the plain step against itself: differences of its size mean nothing. "temp"
is XLA's temporary memory, "build" the time to trace, lower and compile, both over the plain step's.
Rows whose package is missing say so (Hugging Face's classes: `transformers` 4.57, tools/peers.py).
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.ops import machine
from benchmarks.peers import flax_models
from benchmarks.steps import compiled, step_models
from bk_jax.overhead.timing import compare_all


class Row(NamedTuple):
    """A model with its sizes, and the ratios to be reached without and with noise."""

    label: str
    model: str
    sizes: dict[str, int]
    target: str
    package: str = "jax"


ROWS = {
    "gpt2_100": Row("GPT2-small, B=8 T=100", "gpt2", {"batch": 8, "length": 100}, "1.00 / 1.03"),
    "gpt2_1000": Row("GPT2-small, B=2 T=1000", "gpt2", {"batch": 2, "length": 1000}, "1.00 / 1.02"),
    "flax_gpt2_100": Row(
        "GPT2-small by Hugging Face, B=8 T=100", "flax_gpt2", {"batch": 8, "length": 100},
        "1.00 / 1.03", "transformers",
    ),
    "flax_gpt2_1000": Row(
        "GPT2-small by Hugging Face, B=2 T=1000", "flax_gpt2", {"batch": 2, "length": 1000},
        "1.00 / 1.02", "transformers",
    ),
    "roberta": Row("RoBERTa-base, B=4 T=256", "roberta", {"batch": 4, "length": 256}, "1.04 / 1.06"),
    "flax_roberta": Row(
        "RoBERTa-base by Hugging Face, B=4 T=256", "flax_roberta", {"batch": 4, "length": 256},
        "1.04 / 1.06", "transformers",
    ),
    "vit": Row("ViT-base, B=4", "vit", {"batch": 4}, "1.02 / 1.05"),
    "resnet18": Row("ResNet18, 224 pixels, B=8", "resnet18", {"batch": 8}, "0.67 - 0.95"),
    "vgg11": Row("VGG11, 224 pixels, B=4", "vgg11", {"batch": 4}, "0.67 - 0.95"),
    "cnn_12": Row("CNN of flax.nnx, 12 pixels, B=64", "nnx_cnn", {"size": 12}, "1.05 / 1.15", "flax"),
    "cnn_32": Row("CNN of flax.nnx, 32 pixels, B=64", "nnx_cnn", {"size": 32}, "1.05 / 1.15", "flax"),
    "mlp_64": Row("MLP, 10 layers of 1000, B=64", "mlp", {"batch": 64}, "1.00 / 1.12"),
    "mlp_128": Row("MLP, 10 layers of 1000, B=128", "mlp", {"batch": 128}, "1.00 / 1.12"),
    "mlp_250": Row("MLP, 10 layers of 250, B=32", "mlp", {"batch": 32, "width": 250}, "1.05 / 1.10"),
}  # fmt: skip
STEPS = {"without": "auto", "with": "noise"}
COLUMNS = ("model", "plain, ms", "A/A", "without noise", "with noise", "target", "temp", "build")
HEADER = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|"


def measure(row: Row, budget: float) -> dict[str, Any]:
    """All numbers of a row, in this process."""
    task = flax_models.make(row.model, **row.sizes)
    task = step_models.on_device(task)
    plain = compiled.compile_step(task, "plain")
    steps = {name: compiled.compile_step(task, step) for name, step in STEPS.items()}
    runs = {"A/A": plain.run, **{name: step.run for name, step in steps.items()}}
    times = compare_all(plain.run, runs, budget=budget)
    private = steps["without"]
    return {
        "plain": 1e3 * times["A/A"].seconds,
        "times": {name: dataclasses.asdict(timing) for name, timing in times.items()},
        "temp": private.temporary / max(plain.temporary, 1),
        "build": (private.trace + private.compile) / (plain.trace + plain.compile),
    }


def ratio(times: dict[str, Any]) -> str:
    """A ratio with its interval.

    >>> ratio({"ratio": 1.0123, "low": 0.98, "high": 1.1})
    '1.012 (0.980 .. 1.100)'
    """
    return f"{times['ratio']:.3f} ({times['low']:.3f} .. {times['high']:.3f})"


def line(row: Row, found: dict[str, Any]) -> str:
    """A row of the table."""
    times = found["times"]
    cells = [row.label, f"{found['plain']:.1f}", *(ratio(times[name]) for name in ("A/A", *STEPS))]
    cells += [row.target, f"{found['temp']:.2f}", f"{found['build']:.2f}"]
    return f"| {' | '.join(cells)} |"


def run_row(name: str, budget: float) -> str:
    """A row, measured in a process of its own."""
    row = ROWS[name]
    if importlib.util.find_spec(row.package) is None:
        return f"| {row.label} | not measured: {row.package} is not installed |"
    command = [sys.executable, "-m", "benchmarks.steps.table_benchmark", "--row", name]
    command += ["--budget", str(budget)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if result.returncode != 0:
        return f"| {row.label} | failed, exit code {result.returncode} |"
    return line(row, json.loads(result.stdout.splitlines()[-1]))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--row", choices=ROWS, help="this one, here, as JSON")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds per row, at least")
    parser.add_argument("--into", type=Path, help="Markdown file that gets the table as well")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    if arguments.row:
        print(json.dumps(measure(ROWS[arguments.row], arguments.budget)))
        return
    lines = [machine.describe(), "", HEADER]
    print(*lines, sep="\n", flush=True)
    for name in arguments.rows:
        print(f"measuring {ROWS[name].label}", file=sys.stderr, flush=True)
        lines.append(run_row(name, arguments.budget))
        print(lines[-1], flush=True)
        if arguments.into:
            arguments.into.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
