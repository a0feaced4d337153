"""Opacus against plain PyTorch, in the environment that holds them.

One comparison as JSON on standard input, the result as JSON on standard output (benchmarks/suite).

| step | is |
|---|---|
| `opacus, hooks` | per-example gradients of all layers, then clipped |
| `opacus, ghost` | ghost clipping: two back-propagations; refuses tied weights |
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

import torch
from opacus import GradSampleModule
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import nn

from benchmarks.ops.resident import peak_while
from benchmarks.peers.torch_models import MODELS, Task
from benchmarks.suite.comparisons import Comparison, as_result, from_dict
from bk_jax.overhead.timing import compare_all  # which does without JAX

R = 1.0  # clip norm


class Step(NamedTuple):
    """A train step that returns the mean loss, and the module whose parameters then hold gradients."""

    run: Callable[[], float]
    module: nn.Module


def flat(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)


def plain(task: Task) -> Step:
    module = copy.deepcopy(task.module)

    def step() -> float:
        module.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(*flat(module(task.inputs), task.labels))
        loss.backward()
        return loss.item()

    return Step(step, module)


def optimizer_of(module: nn.Module, batch: int) -> DPOptimizer:
    """Only its clipping is used: no step is taken, no noise is drawn."""
    inner = torch.optim.SGD(module.parameters(), lr=0.0)
    return DPOptimizer(inner, noise_multiplier=0.0, max_grad_norm=R, expected_batch_size=batch)


def hooks(task: Task) -> Step:
    module = GradSampleModule(copy.deepcopy(task.module))
    optimizer = optimizer_of(module, task.inputs.shape[0])

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(*flat(module(task.inputs), task.labels))
        loss.backward()
        optimizer.clip_and_accumulate()
        return loss.item()

    return Step(step, module)


def ghost(task: Task) -> Step:
    module = GradSampleModuleFastGradientClipping(
        copy.deepcopy(task.module), max_grad_norm=R, use_ghost_clipping=True
    )
    optimizer = optimizer_of(module, task.inputs.shape[0])
    criterion = DPLossFastGradientClipping(module, optimizer, nn.CrossEntropyLoss())

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(module(task.inputs), task.labels)
        loss.backward()
        return float(loss.item())

    return Step(step, module)


STEPS: dict[str, Callable[[Task], Step]] = {
    "plain": plain,
    "opacus, hooks": hooks,
    "opacus, ghost": ghost,
}


def norm_of_sum(module: nn.Module) -> float:
    """The norm of the clipped sum; hooks leave it beside the gradient."""
    sums = [getattr(p, "summed_grad", None) for p in module.parameters()]
    found = [p.grad if s is None else s for p, s in zip(module.parameters(), sums, strict=True)]
    return float(torch.sqrt(sum(torch.sum(x**2) for x in found)))


def measure(comparison: Comparison) -> dict[str, Any]:
    task = MODELS[comparison.model](**comparison.sizes)
    made = {name: STEPS[name](task) for name in ("plain", *comparison.steps)}
    runs = {name: step.run for name, step in made.items()}
    losses = {name: run() for name, run in runs.items()}
    sums = {name: norm_of_sum(step.module) for name, step in made.items() if name != "plain"}
    timed = compare_all(
        runs["plain"], runs, budget=comparison.budget, least=comparison.least,
        wait=lambda loss: loss,
    )  # fmt: skip
    steps = {
        name: {**as_result(timing), "resident": peak_while(runs[name])}
        for name, timing in timed.items()
    }
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "opacus"))
    threads = f"{versions}, {torch.get_num_threads()} threads"
    return {"steps": steps, "losses": losses, "sums": sums, "versions": threads}


if __name__ == "__main__":
    print(json.dumps(measure(from_dict(json.load(sys.stdin)))))
