"""The private train step of a Keras model: what `bk_jax.keras.make_private` puts in place of Keras' own.

The loss of one example is the model's own `compute_loss_and_updates` on a batch of one row. Optimizer,
metrics and the form of the state are Keras'.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax._extras import require
from bk_jax.api import dp_value_and_grad
from bk_jax.grad_fn import DPValueAndGrad
from bk_jax.interop.adapted import STATE


class Drawn(NamedTuple):
    """The batch of one step of the ledger. The key is data: a constant would be used twice.

    Attributes:
      examples: `(x, y)`, padded to one size.
      is_padding_example: which rows are no examples.
      noise_key: of this step alone.
    """

    examples: Any
    is_padding_example: Any
    noise_key: Any


class Seen(NamedTuple):
    """What the loss of an example shows besides its value. Not private.

    Attributes:
      y_pred: the output of the model.
      added: by position among the metrics' variables, what the loss itself has added to them: Keras
        keeps the mean loss of each output of a model there.
    """

    y_pred: Any
    added: dict[int, Any]


def make_grad_fn(model: Any, options: Mapping[str, Any]) -> DPValueAndGrad:
    """The private gradient of the model's loss; `options` are those of `dp_value_and_grad`."""
    return dp_value_and_grad(_loss_of(model), has_aux=True, shared_argnames=STATE, **options)


def train_step(
    model: Any, grad_fn: DPValueAndGrad, state: Any, data: Any
) -> tuple[Any, tuple[Any, Any, Any, Any]]:
    """Keras' `train_step(state, data)`, with a private gradient."""
    drawn = _drawn(data)
    trainable, others, optimizer_state, metrics = state
    places, size = _seed_places(model), drawn.is_padding_example.shape[0]
    examples = (drawn.examples, [_seeds(others[i], size) for i in places])
    (value, seen), grads = grad_fn(
        trainable,
        examples,
        key=drawn.noise_key,
        is_padding_example=drawn.is_padding_example,
        **{STATE: (others, metrics)},
    )
    trainable, optimizer_state = model.optimizer.stateless_apply(optimizer_state, grads, trainable)
    logs, metrics = _update_metrics(model, metrics, drawn, value, seen)
    others = [_next_seed(v) if i in places else v for i, v in enumerate(others)]
    return logs, (trainable, others, optimizer_state, metrics)


def _drawn(data: Any) -> Drawn:
    if isinstance(data, tuple) and len(data) == 1 and isinstance(data[0], Drawn):
        return data[0]
    raise ValueError(
        "a private model trains on the batches that its ledger draws and pays for: call model.fit(x, y) "
        "with all examples. train_on_batch, and loops that call train_step, choose batches themselves."
    )


# --- the loss of one example ---


def _loss_of(model: Any) -> Callable[..., Any]:
    """The loss of a batch of one row, with a seed for each generator of the model."""

    def loss_fn(trainable: Any, example: Any, **state: Any) -> tuple[Any, Seen]:
        ((x, y), seeds), (others, metrics) = example, state[STATE]
        values, places = list(others), _seed_places(model)
        for place, seed in zip(places, seeds, strict=True):
            values[place] = seed[0]
        _, (loss, y_pred, after, metrics_after) = model.compute_loss_and_updates(
            trainable, values, metrics, x, y, None, training=True, optimizer_variables=()
        )
        _refuse_changes(model, places, values, after)
        pairs = enumerate(zip(metrics, metrics_after, strict=True))
        return loss, Seen(y_pred, {i: new - old for i, (old, new) in pairs if new is not old})

    return loss_fn


def _seed_places(model: Any) -> list[int]:
    """Where in the non-trainable variables the states of seed generators are: they are no weights."""
    weights = {id(v) for v in model.weights}
    return [i for i, v in enumerate(model.non_trainable_variables) if id(v) not in weights]


def _seeds(state: jax.Array, size: int) -> jax.Array:
    """A state for each example, from that of the model's generator, which is a key of threefry."""
    key = jax.random.wrap_key_data(state, impl="threefry2x32")
    return jax.random.key_data(jax.random.split(key, size))


def _next_seed(state: jax.Array) -> jax.Array:
    """As a seed generator counts."""
    return state + jnp.asarray(np.array([0, 1]), state.dtype)


def _refuse_changes(
    model: Any, places: Sequence[int], before: Sequence[Any], after: Sequence[Any]
) -> None:
    """A change would be made from single examples, and nothing makes it private."""
    changed = [
        repr(variable.path)
        for i, variable in enumerate(model.non_trainable_variables)
        if i not in places and after[i] is not before[i]
    ]
    if changed:
        raise ValueError(
            f"a training call of the model changes {', '.join(changed)}. A private step runs the model "
            "on each example by itself, and a state that examples have changed is not private. Replace "
            "the layer (BatchNormalization by LayerNormalization or GroupNormalization), or set its "
            "trainable to False and compile again: BatchNormalization then keeps the statistics it has."
        )


# --- metrics ---


def _update_metrics(
    model: Any, metrics: Sequence[Any], drawn: Drawn, value: Any, seen: Seen
) -> tuple[Any, list[Any]]:
    """Keras' metrics of the real examples.

    A row of padding has the weight 0, and what the first real example shows: a model need not be finite
    on zeros, and 0 times NaN is NaN. A batch of padding alone changes no metric.
    """
    real = ~drawn.is_padding_example
    weights = jnp.where(real, 1.0, 0.0)
    shown = functools.partial(_first_in_padding, real)
    (x, y), seen = jax.tree_util.tree_map(shown, (drawn.examples, seen))
    values = list(metrics)
    for place, added in seen.added.items():
        values[place] += jnp.tensordot(weights.astype(added.dtype), added, 1)
    y_pred = jax.tree_util.tree_map(lambda rows: rows[:, 0], seen.y_pred)
    variables = model.metrics_variables
    keras = require("keras", "keras", install="keras")
    scope = keras.StatelessScope(list(zip(variables, values, strict=True)))
    with scope, _weighted(model, weights):
        model._loss_tracker.update_state(value, sample_weight=jnp.sum(weights))
        logs = model.compute_metrics(x, y, y_pred, weights)
    pairs = zip(variables, metrics, strict=True)
    return logs, [jnp.where(jnp.any(real), scope.get_current_value(v), old) for v, old in pairs]


def _first_in_padding(real: jax.Array, rows: Any) -> jax.Array:
    """The rows, those of padding replaced by the first real one, if there is one."""
    rows = jnp.asarray(rows)
    mask = jnp.reshape(real, (-1, *[1] * (rows.ndim - 1)))
    return jnp.where(mask, rows, rows[jnp.argmax(real)])


@contextlib.contextmanager
def _weighted(model: Any, weights: jax.Array) -> Iterator[None]:
    """All metrics of `compile` take the weights; by itself Keras gives them to `weighted_metrics`."""
    compiled = model._compile_metrics.metrics if model._compile_metrics is not None else []
    for metric in compiled:
        update = functools.partial(_update_with, metric.update_state, weights)
        object.__setattr__(metric, "update_state", update)
    try:
        yield
    finally:
        for metric in compiled:
            object.__delattr__(metric, "update_state")


def _update_with(
    update: Callable[..., Any], weights: jax.Array, y: Any, y_pred: Any, sample_weight: Any = None
) -> Any:
    del sample_weight  # the same, or none
    return update(y, y_pred, sample_weight=weights)
