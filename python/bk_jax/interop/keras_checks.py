"""What `bk_jax.keras.make_private` and the `fit` of a private model refuse, and why."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from bk_jax.api import dp_value_and_grad

OPTIONS = frozenset(inspect.signature(dp_value_and_grad).parameters) - {"loss_fn", "l2_clip_norm"}
# What the plan or the step decides among them.
DECIDED = frozenset(("argnums", "batch_argnums", "has_aux", "keep_batch_dim", "loss_scale"))
DECIDED |= {"noise_multiplier", "normalize_by", "prng_argnum", "return_stats", "shared_argnames"}
# Arguments of Keras' fit that have no meaning here, and what to do instead.
REFUSED = {
    "batch_size": "the plan decides it; validation has validation_batch_size",
    "sample_weight": "every example counts once; put what you know of it into the loss",
    "class_weight": "every example counts once; put weights of classes into the loss",
    "validation_split": "the plan is for all examples of x; pass validation_data",
}
# The fit that tasks of keras-hub have: it sends data through their preprocessor.
TASK_FIT = "PipelineModel.fit"


def check_options(options: Mapping[str, Any]) -> None:
    """Options of the gradient that nobody else decides."""
    if decided := sorted(DECIDED & options.keys()):
        raise TypeError(f"the plan and Keras decide {', '.join(decided)}; leave it out.")
    if unknown := sorted(options.keys() - OPTIONS):
        raise TypeError(
            f"make_private has no argument {', '.join(unknown)}; options of dp_value_and_grad that it "
            f"takes are {', '.join(sorted(OPTIONS - DECIDED))}."
        )


def check_model(keras: Any, model: Any) -> None:
    """A model whose train step is Keras' own, on JAX."""
    if keras.backend.backend() != "jax":
        raise ValueError(
            f"Keras runs on {keras.backend.backend()}, and bk_jax on JAX. Set the environment variable "
            "KERAS_BACKEND=jax before keras is imported."
        )
    if not isinstance(model, keras.Model):
        raise TypeError(f"make_private expects a keras.Model, got a {type(model).__name__}.")
    if keras.config.is_nnx_enabled():
        raise ValueError(
            "Keras with nnx enabled has train steps of its own: unset KERAS_NNX_ENABLED."
        )
    if type(model).train_step is not keras.Model.train_step:
        raise ValueError(
            f"{type(model).__name__} has a train_step of its own, which a private one would replace. "
            "Say what is particular to it in compute_loss, which is called with a batch of one example."
        )


def check_compiled(keras: Any, model: Any) -> None:
    """A loss as it is, on one device."""
    if not model.compiled or model.optimizer is None:
        raise ValueError("compile the model before fit: model.compile(optimizer, loss).")
    optimizer = model.optimizer
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if scales or optimizer.loss_scale_factor is not None:
        raise ValueError(
            "the optimizer scales the loss, and gradients would be clipped at another norm than the "
            "plan's. Leave loss_scale_factor out, and compile with auto_scale_loss=False."
        )
    if keras.distribution.distribution() is not None:
        raise ValueError(
            "a private model trains on one device; set keras.distribution.set_distribution(None). "
            "docs/devices.md has the loop for several."
        )


def check_preprocessor(model: Any) -> None:
    """A task of keras-hub would tokenize batches as they come; ours are rows of arrays."""
    if type(model).fit.__qualname__ == TASK_FIT and model.preprocessor is not None:
        raise ValueError(
            f"{type(model).__name__} has a preprocessor, and a private fit draws from examples that are "
            "prepared already. Prepare all of them once, by model.preprocessor(x, y), and set "
            "model.preprocessor = None. If that gives weights of tokens, put them into y: "
            "numpy.where(weights, y, -1), with a loss that has ignore_class=-1."
        )


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Arguments of Keras' fit that would change who is in a batch, or how often."""
    for name, instead in REFUSED.items():
        if not _is_default(arguments.get(name)):
            raise ValueError(f"fit of a private model takes no {name}: {instead}.")


def _is_default(value: Any) -> bool:
    """Whether this is what Keras' fit has where nothing is given."""
    return value is None or (isinstance(value, int | float) and value == 0)


def check_arrays(data: Any) -> None:
    """All examples at hand, one row each."""
    for leaf in jax.tree_util.tree_leaves(data, lambda node: isinstance(node, Iterator)):
        if not isinstance(leaf, np.ndarray | jax.Array) or leaf.ndim == 0:
            raise TypeError(
                "fit of a private model draws its batches from all examples, so x and y are arrays of "
                "NumPy or JAX, or trees of them, with a leading axis of examples; got a "
                f"{type(leaf).__name__}. Data sets and generators choose batches themselves, and the "
                "accounting would not hold for those: load their examples into arrays."
            )
