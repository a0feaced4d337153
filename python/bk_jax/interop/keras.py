"""Keras 3 on JAX: after `bk_jax.keras.make_private(model, ...)`, `model.fit` trains privately.

| of Keras | in a private model |
|---|---|
| `compile`, `evaluate`, `predict`, `save`, callbacks, validation | as before |
| `fit(x, y)` | Poisson batches of the plan; takes arrays, and no weights |
| `optimizer` | as before, but none that scales the loss |
| metrics and loss of training | of the real examples of each batch. NOT PRIVATE |
| seed generators (dropout) | split, one seed for each example |
| variables that a training call changes | refused |
| `train_on_batch`, a `train_step` of the model's own | refused |

What is saved is an ordinary model: to train it further, call `make_private` on it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import Any

import jax

import bk_jax.random
from bk_jax import privacy
from bk_jax._extras import require
from bk_jax.interop import keras_checks
from bk_jax.interop.keras_step import Drawn, make_grad_fn, train_step
from bk_jax.sampling import Loader, PoissonSampler
from bk_jax.sampling.planned import Nobody

__all__ = ["Private", "make_private"]

NEEDED = ("target_epsilon", "delta", "num_examples", "batch_size")  # of a plan from a budget


def make_private(
    model: Any,
    *,
    ledger: str | os.PathLike[str],
    epsilon: float | None = None,
    delta: float | None = None,
    num_examples: int | None = None,
    batch_size: float | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    l2_clip_norm: float | None = None,
    plan: privacy.PrivacyPlan | None = None,
    checkpoint: Mapping[str, Any] | None = None,
    forfeit: bool = False,
    fork: bool = False,
    key: jax.Array | None = None,
    **options: Any,
) -> Any:
    """Makes `model.fit` private, and returns the model. `model.privacy` tells what was spent.

        model.compile("adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
        bk_jax.keras.make_private(model, ledger="run.ledger", epsilon=3, delta=1e-6,
                                  num_examples=50_000, batch_size=256, epochs=10)
        model.fit(x, y, epochs=10, validation_data=held_out)
        print(model.privacy.epsilon())

    Args:
      model: a Keras model; compile it before or after.
      ledger: the file of what has been spent and of the secret key, see `bk_jax.privacy.open_ledger`.
        It is open until `model.privacy.ledger.close()`, or the end of the process.
      epsilon: the budget; with `delta`, `num_examples`, `batch_size` (expected size of a Poisson
        batch), `l2_clip_norm` (default 1) and either `epochs` or `steps` as for `bk_jax.privacy.plan`.
      delta: see `epsilon`.
      num_examples: see `epsilon`.
      batch_size: see `epsilon`.
      epochs: see `epsilon`.
      steps: see `epsilon`.
      l2_clip_norm: see `epsilon`.
      plan: a plan with a `max_batch_size`, in place of all of these. Without plan and numbers, it is
        that of the ledger, which must exist.
      checkpoint: what `model.privacy.checkpoint()` returned when this model was saved.
      forfeit: go on although the ledger has steps that the model has not; see `open_ledger`.
      fork: go on in a copy of a ledger; see `open_ledger`.
      key: the secret key of a new ledger, for repeatable runs.
      **options: of `bk_jax.dp_value_and_grad`: `clipping`, `method`, `microbatch_size` and others.
    """
    keras_checks.check_model(require("keras", "keras", install="keras"), model)
    keras_checks.check_options(options)
    if isinstance(getattr(model, "privacy", None), Private):
        raise ValueError("the model is private already, and its ledger goes on with every fit.")
    numbers = {
        "target_epsilon": epsilon,
        "delta": delta,
        "num_examples": num_examples,
        "batch_size": batch_size,
        "epochs": epochs,
        "steps": steps,
        "l2_clip_norm": l2_clip_norm,
    }
    plan = _plan(plan, {name: value for name, value in numbers.items() if value is not None})
    with contextlib.ExitStack() as held:
        opened = privacy.open_ledger(
            ledger, plan, checkpoint=checkpoint, forfeit=forfeit, fork=fork, key=key
        )
        held.callback(opened.close)
        plan = _check_plan(opened.plan)
        grad_fn = make_grad_fn(model, plan.options() | options)
        held.pop_all()
    model.privacy = Private(model, plan, opened)
    model.train_step = functools.partial(train_step, model, grad_fn)
    model.fit = model.privacy.fit
    model.train_function = None  # it may hold a step that is not private
    return model


@dataclasses.dataclass(frozen=True, eq=False)
class Private:
    """What `make_private` adds to a model, as `model.privacy`.

    Attributes:
      model: the model.
      plan: what may be spent.
      ledger: what has been spent.
    """

    model: Any
    plan: privacy.PrivacyPlan
    ledger: privacy.Ledger

    def epsilon(self) -> float:
        """What has been spent so far, at the plan's delta."""
        return self.ledger.epsilon()

    def checkpoint(self) -> dict[str, Any]:
        """What to save beside the model, to go on with it later: two plain integers."""
        return self.ledger.checkpoint()

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        *,
        epochs: int | None = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        **arguments: Any,
    ) -> Any:
        """Keras' `fit`, on Poisson batches of the plan; further arguments are Keras'.

        Args:
          x: all examples: an array, or a tree of arrays for a model with several inputs.
          y: their targets.
          epochs: as in Keras; default: as many as the plan has left.
          initial_epoch: as in Keras.
          steps_per_epoch: steps of an epoch; default: `num_examples // batch_size`, or what is left.
          **arguments: of Keras' `fit`: `callbacks`, `validation_data`, `verbose` and others.
        """
        keras_checks.check_preprocessor(self.model)
        keras_checks.check_arguments(arguments)
        keras_checks.check_arrays((x, y))
        nobody = Loader((x, y), Nobody.of(self.plan))
        left = self.plan.steps - self.ledger.steps
        pass_over_data = int(self.plan.num_examples // self.plan.batch_size)
        per_epoch = steps_per_epoch or max(1, min(pass_over_data, left))
        count = initial_epoch + max(1, left // per_epoch) if epochs is None else epochs
        self._check_left(left, (count - initial_epoch) * per_epoch)
        self._rehearse(nobody)
        loader = dataclasses.replace(nobody, sampler=PoissonSampler.of(self.plan))
        return _fit_of(self.model)(
            self.model,
            _dataset(self.ledger, loader, per_epoch),
            epochs=count,
            initial_epoch=initial_epoch,
            **arguments | {"shuffle": False},
        )

    def _check_left(self, left: int, wanted: int) -> None:
        if wanted > left:
            raise ValueError(
                f"fit was asked for {wanted} steps, but the plan has {left} of {self.plan.steps} left "
                f"(epsilon {self.epsilon():.3g} is spent). Pass smaller epochs or steps_per_epoch; more "
                "steps need a plan that has them from the start."
            )

    def _rehearse(self, nobody: Loader) -> None:
        """Builds the model and traces a step on padding: what is wrong shows before it costs a step."""
        keras_checks.check_compiled(require("keras", "keras", install="keras"), self.model)
        key = bk_jax.random.key()
        batch = nobody.batch(key)
        self.model._symbolic_build(data_batch=batch.examples)
        model = self.model
        state = [
            [variable.value for variable in variables]
            for variables in (
                model.trainable_variables,
                model.non_trainable_variables,
                model.optimizer.variables,
                model.metrics_variables,
            )
        ]
        jax.eval_shape(model.train_step, tuple(state), (Drawn(*batch, key),))


def _fit_of(model: Any) -> Any:
    """The `fit` of the model, but that of a task of keras-hub, which would prepare our batches again."""
    own = type(model).fit
    if own.__qualname__ != keras_checks.TASK_FIT:
        return own
    return require("keras", "keras", install="keras").Model.fit


def _dataset(ledger: privacy.Ledger, loader: Loader, steps: int) -> Any:
    """The batches of an epoch. Each is on record when it is drawn, whatever becomes of it."""

    def draw(dataset: Any, index: int) -> tuple[Drawn]:
        del dataset, index  # the ledger counts
        step = ledger.take()
        return (Drawn(*loader.batch(step.sampling_key), step.noise_key),)

    base = require("keras", "keras", install="keras").utils.PyDataset
    members = {"__len__": lambda dataset: steps, "__getitem__": draw}
    return type("PoissonBatches", (base,), members)()


def _plan(
    plan: privacy.PrivacyPlan | None, numbers: Mapping[str, Any]
) -> privacy.PrivacyPlan | None:
    """The plan of the budget, or the one that was given, or none: then it is the ledger's."""
    names = ", ".join(numbers).replace("target_", "")
    if plan is not None and numbers:
        raise TypeError(f"the plan says all about the budget already; leave out {names}.")
    if plan is not None:
        return _check_plan(plan)
    if not numbers:
        return None
    if missing := [name for name in NEEDED if name not in numbers]:
        needed = ", ".join(missing).replace("target_", "")
        raise TypeError(f"with {names}, make_private needs {needed}; or a plan in their place.")
    return privacy.plan(max_batch_size="auto", **numbers)


def _check_plan(plan: Any) -> privacy.PrivacyPlan:
    if isinstance(plan, privacy.PrivacyPlan) and plan.max_batch_size is not None:
        return plan
    raise ValueError(
        "a step of Keras takes its whole batch in one shape: make_private needs a PrivacyPlan with "
        f'max_batch_size; bk_jax.privacy.plan(..., max_batch_size="auto") makes one. Got {plan}.'
    )
