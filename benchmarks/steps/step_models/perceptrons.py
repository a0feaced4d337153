"""Multilayer perceptrons: T = 1, where per-example gradients are as large as they can be."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax

from benchmarks.steps.step_models.parts import Params, Task, Weights, cross_entropy, dense


def mlp(
    w: Weights,
    batch: int = 128,
    width: int = 1000,
    depth: int = 10,
    inputs: int | None = None,
    classes: int = 10,
) -> Task:
    """`depth` layers of `width` (the first reads `inputs` numbers), then the classes."""
    widths = [inputs or width, *[width] * depth, classes]
    params = [w.dense(d, p) for d, p in pairwise(widths)]

    def loss(params: Params, batch: Any) -> jax.Array:
        x, labels = batch
        for layer in params[:-1]:
            x = jax.nn.relu(dense(layer, x))
        return cross_entropy(dense(params[-1], x), labels)

    return Task(loss, params, (w.normal(batch, widths[0], scale=1.0), w.labels(batch, classes)))
