"""The models whose train steps are timed, in plain JAX: parameters, a batch and a loss.

    task = step_models.make("gpt2", batch=8, length=100)
    loss, grads = jax.value_and_grad(task.loss)(task.params, task.batch)

Sizes are those of the published models unless others are asked for; weights are random. Normalisation
is over one example (LayerNorm, GroupNorm), as private training needs it. `make(..., abstract=True)` has
shapes instead of arrays: enough to trace and to compile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from benchmarks.steps.step_models.beit import beit
from benchmarks.steps.step_models.convnext import convnext_base
from benchmarks.steps.step_models.convolutional import (
    resnet18,
    resnet50,
    resnet152,
    vgg11,
    vgg16,
    wide_resnet50,
)
from benchmarks.steps.step_models.densenet import densenet121
from benchmarks.steps.step_models.llama import llama, llama_8b, llama_70b
from benchmarks.steps.step_models.parts import Task, Weights
from benchmarks.steps.step_models.perceptrons import mlp
from benchmarks.steps.step_models.transformers import gpt2, roberta, vit

MODELS: dict[str, Callable[..., Task]] = {
    "mlp": mlp,
    # The three perceptrons of the paper's figure 2, on flattened CIFAR100.
    "mlp_shallow": partial(mlp, depth=9, inputs=3072, classes=100),
    "mlp_deep": partial(mlp, depth=49, inputs=3072, classes=100),
    "mlp_wide": partial(mlp, depth=9, width=5000, inputs=3072, classes=100),
    "gpt2": gpt2,
    "gpt2_medium": partial(gpt2, depth=24, d=1024),
    "gpt2_large": partial(gpt2, depth=36, d=1280),
    "roberta": roberta,
    "roberta_large": partial(roberta, depth=24, d=1024),
    "vit": vit,
    "vit_large": partial(vit, depth=24, d=1024),
    "beit_large": beit,
    "llama": llama,
    "llama_8b": llama_8b,
    "llama_70b": llama_70b,
    "resnet18": resnet18,
    "resnet50": resnet50,
    "resnet152": resnet152,
    "wide_resnet50": wide_resnet50,
    "vgg11": vgg11,
    "vgg16": vgg16,
    "densenet121": densenet121,
    "convnext_base": convnext_base,
}


def make(name: str, *, abstract: bool = False, **sizes: Any) -> Task:
    """The model of that name; `sizes` are keyword arguments of its function."""
    if name not in MODELS:
        raise ValueError(f"there is no model {name!r}; models are {', '.join(MODELS)}.")
    return MODELS[name](Weights(abstract), **sizes)


def on_device(task: Task) -> Task:
    """The same with its arrays where steps run, so that no step copies them there."""
    return Task(task.loss, *jax.device_put((task.params, task.batch)))
