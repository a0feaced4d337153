"""A table, learned privately: malignant or benign, from 30 measurements of cells.

python examples/tabular.py --config configs/tabular.toml
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import study
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

Tree = Any


def load_data() -> tuple[Tree, Tree]:
    """Rows to learn from and held-out rows, scaled by the ranges that the data's description prints.

    Ranges of the rows themselves would be a release of their own, with an epsilon of its own.
    """
    bunch = load_breast_cancer()
    printed = re.findall(r"\((?:mean|standard error|worst)\): +([\d.]+) +([\d.]+)", bunch.DESCR)
    low, high = np.asarray(printed, np.float64).T
    x = (2 * (bunch.data - low) / (high - low) - 1).astype(np.float32)
    parts = train_test_split(x, bunch.target.astype(np.float32), test_size=0.2, random_state=0)
    return {"x": parts[0], "y": parts[2]}, {"x": parts[1], "y": parts[3]}


def init_params(widths: Sequence[int], seed: int = 0) -> Tree:
    """Hidden layers of these widths, and one number at the end."""
    rng = np.random.default_rng(seed)
    sizes = itertools.pairwise((30, *widths, 1))
    return [
        {
            "w": (rng.normal(size=size) / np.sqrt(size[0])).astype(np.float32),
            "b": np.zeros(size[1], np.float32),
        }
        for size in sizes
    ]


def logits_fn(params: Tree, x: jax.Array) -> jax.Array:
    for layer in params[:-1]:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return (x @ params[-1]["w"] + params[-1]["b"])[:, 0]


def losses_fn(params: Tree, rows: Tree, frozen: None) -> jax.Array:
    return optax.sigmoid_binary_cross_entropy(logits_fn(params, rows["x"]), rows["y"])


def make_problem(model: dict[str, Any]) -> study.Problem:
    data, held_out = load_data()

    @jax.jit
    def evaluate(params: Tree) -> dict[str, jax.Array]:
        right = (logits_fn(params, held_out["x"]) > 0) == held_out["y"]
        return {"accuracy": jnp.mean(right)}

    optimizer = optax.adam(model["learning_rate"])
    params = init_params(model["widths"], model.get("seed", 0))
    return study.Problem(params, losses_fn, data, evaluate, optimizer)


def main(argv: Sequence[str] | None = None) -> list[study.Outcome]:
    return study.main("tabular", "Malignant or benign, from 30 measurements", make_problem, argv)


if __name__ == "__main__":
    main()
