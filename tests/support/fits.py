"""A small problem, and runs of the trainer on it that print nothing."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import rich.console

import bk_jax
from bk_jax import privacy, training

DATA = {
    "x": np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32),
    "y": np.random.default_rng(1).integers(0, 2, 60).astype(np.float32),
}
PARAMS = {"w": np.zeros(4, np.float32), "b": 0.0}  # a Python number has a weak type
OPTIMIZER = optax.adam(0.1)
PLAN = privacy.PrivacyPlan(
    num_examples=60,
    batch_size=8,
    steps=8,
    delta=1e-3,
    noise_multiplier=1.0,
    max_batch_size=32,
    pld_interval=0.05,
)
ANY_SIZE = dataclasses.replace(PLAN, max_batch_size=None)
KEY = bk_jax.random.key(3)


def loss_fn(params: Any, batch: Any) -> jax.Array:
    """Logistic regression."""
    logits = batch["x"] @ params["w"] + params["b"]
    return jnp.mean(optax.sigmoid_binary_cross_entropy(logits, batch["y"]))


def fit(
    directory: Path,
    loss: Callable[..., Any] | None = loss_fn,
    plan: privacy.PrivacyPlan | privacy.CorrelatedPlan = PLAN,
    **options: Any,
) -> training.Result:
    """A run in a directory; options are those of the trainer."""
    quiet = {"console": rich.console.Console(file=io.StringIO()), "plot": False}
    if getattr(plan, "max_batch_size", None) is None:
        options = {"physical_batch_size": 4} | options
    options = {"optimizer": OPTIMIZER, "checkpoint_every": 3} | quiet | options
    return training.fit(loss, PARAMS, DATA, plan=plan, directory=directory, **options)


def equal(left: Any, right: Any) -> None:
    """Trees of arrays with the same bits."""
    jax.tree.map(np.testing.assert_array_equal, left, right)
