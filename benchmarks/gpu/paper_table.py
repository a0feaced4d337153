"""The paper's table of one A100: largest batch, throughput and ratios, measured on the GPU at hand.

    bazel run --config=cuda //benchmarks/gpu:paper_table [-- --models gpt2 --dtype bfloat16]

Each (model, method) runs in a process of its own (`paper_worker`), so that its memory is its own: the
batch grows until memory does not suffice, then the step with the largest batch is timed. Beside it
stand the numbers that the paper printed (PyTorch, A100 with 40 GB).
Products of float32 are exact to float32 unless `--precision` says otherwise: XLA's own default on a
GPU is TF32, which neither PyTorch's default nor our kernels for norms are, and a table of two
precisions would compare those.
Without a GPU it says so and does nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import bk_jax
from benchmarks.gpu.printed import MODELS, PRINTED
from benchmarks.steps import step_models


class Result(NamedTuple):
    """The largest batch that fits, and examples per second with it."""

    batch: int
    throughput: float


def step_of(task: step_models.Task, method: str) -> Callable[..., Any]:
    if method == "none":
        return jax.value_and_grad(task.loss)
    return bk_jax.clipped_value_and_grad(task.loss, method=method)


class Numbers(NamedTuple):
    """What is calculated with: the type of parameters, and the precision of products in float32."""

    dtype: Any
    precision: str


def lower(task: step_models.Task, method: str, params: Any, numbers: Numbers) -> Any:
    """The step, all of whose products have one precision: the model's and ours."""
    with jax.default_matmul_precision(numbers.precision):
        return jax.jit(step_of(task, method)).lower(params, task.batch)


class Measured(NamedTuple):
    """A step of a model: what it computes, with what numbers, and sizes in place of the paper's."""

    model: str
    method: str
    numbers: Numbers
    sizes: Mapping[str, int] = MappingProxyType({})

    def task(self, batch: int) -> step_models.Task:
        name, sizes = MODELS[self.model]
        return step_models.make(name, batch=batch, **{**sizes, **self.sizes})


def seconds(step: Measured, batch: int, repeats: int) -> float | None:
    """The median time of a step, or nothing if memory does not suffice."""
    task, numbers = step.task(batch), step.numbers
    params = jax.tree.map(lambda x: jnp.asarray(x, numbers.dtype), task.params)
    try:
        program = lower(task, step.method, params, numbers).compile()
        times = []
        for _ in range(repeats + 1):
            start = time.perf_counter()
            jax.block_until_ready(program(params, task.batch))
            times.append(time.perf_counter() - start)
        return statistics.median(times[1:])  # the first one warms up
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return None


def largest(step: Measured, limit: int = 0) -> Result | None:
    """Doubles the batch until it does not fit, then halves the interval; above `limit` nothing fits.

    0 is no limit.
    """

    def fits(batch: int) -> bool:
        return not 0 < limit < batch and seconds(step, batch, 1) is not None

    good, bad = 0, 1
    while fits(bad):
        good, bad = bad, 2 * bad
    while bad - good > max(1, good // 16):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    time_ = seconds(step, good, 10) if good else None
    return Result(good, good / time_) if time_ else None


def in_its_process(job: dict[str, Any]) -> Result | None:
    """What `paper_worker` finds for a job."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "true",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.95",
    }
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu.paper_worker"], input=json.dumps(job), text=True,
        stdout=subprocess.PIPE, env=environment, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    return Result(found["batch"], found["throughput"]) if found["batch"] else None


def print_model(model: str, dtype: str, precision: str) -> None:
    job = {"model": model, "dtype": dtype, "precision": precision}
    found = {method: in_its_process({**job, "method": method}) for method in PRINTED[model]}
    ours = found["auto"]
    for method, result in found.items():
        batch, throughput = PRINTED[model][method]
        here = (
            "does not fit | |" if result is None else f"{result.batch} | {result.throughput:.1f} |"
        )
        ratio = f"{ours.throughput / result.throughput:.2f}" if ours and result else ""
        printed = f"{batch} | {throughput} | {PRINTED[model]['auto'][1] / throughput:.2f}"
        print(f"| {model} | {method} | {here} {ratio} | {printed} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--dtype", default="float32", help="of parameters and activations")
    parser.add_argument(
        "--precision",
        choices=["float32", "tensorfloat32"],
        default="float32",
        help="of products of float32, the model's and ours",
    )
    arguments = parser.parse_args()
    # The memory is for the processes that measure.
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    try:
        device = jax.devices("gpu")[0]
    except RuntimeError as error:
        print(f"paper_table: skipped, no GPU for JAX: {error}")
        return
    kind = f"{arguments.dtype}, products in {arguments.precision}"
    print(f"{device.device_kind}, jax {jax.__version__}, {kind}, no noise\n")
    bk_jax.diagnose()
    print(
        "\n| model | method | largest batch | examples / s | auto is so many times as fast "
        "| paper: batch | examples / s | ratio |"
    )
    print("|---" * 8 + "|")
    for model in arguments.models:
        print_model(model, arguments.dtype, arguments.precision)


if __name__ == "__main__":
    main()
