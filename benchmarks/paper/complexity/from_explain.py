"""How much of a model Book-Keeping applies to, as `explain` finds it in the traced program.

The models are those of benchmarks/steps; their parameters are shapes here, so that nothing is drawn.
"""

from __future__ import annotations

import math
from typing import Any

import bk_jax
from benchmarks.paper.complexity import layers, printed
from benchmarks.paper.complexity.markdown import markdown
from benchmarks.steps import step_models

LINEAR = ("dense", "conv", "lookup", "tied")
NAMES = {  # of the layer table, and of the traced model
    "mlp_deep": "mlp_deep",
    "mlp_shallow": "mlp_shallow",
    "mlp_wide": "mlp_wide",
    "gpt2": "gpt2",
    "gpt2-medium": "gpt2_medium",
    "gpt2-large": "gpt2_large",
    "roberta-base": "roberta",
    "roberta-large": "roberta_large",
    "vit_base_patch16_224": "vit",
    "vit_large_patch16_224": "vit_large",
    "beit_large_patch16_224": "beit_large",
    "resnet18": "resnet18",
    "resnet50": "resnet50",
    "resnet152": "resnet152",
    "wide_resnet50": "wide_resnet50",
    "vgg11": "vgg11",
    "vgg16": "vgg16",
    "densenet121": "densenet121",
    "convnext_base": "convnext_base",
}


def explanation(name: str, **sizes: int) -> Any:
    """What `explain` says about a model of benchmarks/steps with a batch of one."""
    task = step_models.make(name, abstract=True, batch=1, **sizes)
    return bk_jax.dp_value_and_grad(task.loss).explain(task.params, task.batch)


def applicable(name: str, **sizes: int) -> tuple[int, int]:
    """Parameters in weights of generalized linear layers, and all of them."""
    found = {
        row.path: (math.prod(row.shape), row.kind in LINEAR)
        for row in explanation(name, **sizes).rows
    }
    weights = sum(size for size, linear in found.values() if linear)
    return weights, sum(size for size, _ in found.values())


def explain_table(model: str | None) -> str:
    """Weights of generalized linear layers and all parameters, by the tables and by `explain`."""
    paper = printed.read("parameters")["models"]
    rows = []
    for table, traced in NAMES.items():
        if model not in (None, table):
            continue
        counts = layers.count_parameters(layers.read(table))
        weights, total = applicable(traced)
        shares = [f"{100 * counts.weights / counts.total:.2f}%", f"{100 * weights / total:.2f}%"]
        numbers = [counts.weights, weights, counts.total, total]
        in_paper = [paper.get(table, {}).get(key, "") for key in ("weights", "applicable")]
        rows.append([table, *map(str, numbers), *shares, *in_paper])
    by = "by `explain`"
    header = [
        "model",
        "weights",
        by,
        "all",
        by,
        "applicable",
        by,
        "weights, paper",
        "applicable, paper",
    ]
    return markdown(header, rows)
