"""One training step: a step of the ledger in, the next state out; compiled once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import bk_jax
from bk_jax._extras import require
from bk_jax.mechanisms import CorrelatedRelease
from bk_jax.privacy import Step
from bk_jax.privacy.plans import Plan
from bk_jax.sampling import Loader, accumulated

DECIDED = {"argnums", "batch_argnums", "has_aux", "return_stats"}
DECIDED |= {"noise_multiplier", "normalize_by"}
LOSS = 2  # folded into a step's sampling key, for losses that draw random numbers


class State(NamedTuple):
    """What a step changes, and what a checkpoint holds.

    `noise_state` is empty unless noise is correlated over steps and its kind stores something,
    `clip_norms` unless they are adaptive.
    """

    params: Any
    optimizer_state: Any
    noise_state: Any = ()
    clip_norms: Any = ()


class Seen(NamedTuple):
    """What a step saw of the training data. Not private."""

    size: jax.Array
    loss: jax.Array
    clipped: jax.Array
    nonfinite: jax.Array


TakeStep = Callable[[State, Loader, Step], tuple[State, Seen]]


def make_grad_fn(
    loss_fn: Callable[..., Any],
    plan: Plan,
    options: Mapping[str, Any],
    constants: Iterable[str],
) -> Any:
    """The private gradient of the plan; `options` are further options of `dp_value_and_grad`.

    `constants` names arguments of the loss that are the same at every step. They cannot be data of
    the examples in a batch, because those change.
    """
    for name in options:
        if name in DECIDED:
            raise ValueError(
                f"{name} is decided by the plan and by fit. For another value, write the loop by hand: "
                "docs/training.md has it."
            )
    if options.get("prng_argnum") not in (None, 2):
        raise ValueError(
            f"prng_argnum must be 2, for a loss that is loss_fn(params, batch, key); got "
            f"{options['prng_argnum']!r}."
        )
    given = options.get("shared_argnames", ())
    shared = (*((given,) if isinstance(given, str) else given), *constants)
    chosen = plan.options() | dict(options) | {"shared_argnames": shared}
    return bk_jax.dp_value_and_grad(loss_fn, return_stats=True, **chosen)


def step_as_one(grad_fn: Any, optimizer: Any, kwargs: Mapping[str, Any]) -> TakeStep:
    """A step that takes the whole batch, padded to the plan's `max_batch_size`, in one program.

    `kwargs` go to the loss, the same at every step. They are arguments of the program, not
    constants.
    """
    update = bk_jax.private_update(grad_fn, optimizer)

    @functools.partial(jax.jit, donate_argnames="optimizer_state")
    def train(
        params: Any, optimizer_state: Any, batch: Any, others: Any, key: Any, kwargs: Any
    ) -> tuple[State, Seen]:
        padding = batch.is_padding_example
        found = update.clipped_sums(
            params, batch.examples, *others, is_padding_example=padding, **kwargs
        )
        state = State(*update(found.sums, optimizer_state, params, key=key))
        clipped, nonfinite = found.stats.clipped_fraction, found.stats.nonfinite_count
        return state, Seen(jnp.sum(~padding), found.value, clipped, nonfinite)

    def take_step(state: State, loader: Loader, step: Step) -> tuple[State, Seen]:
        batch = loader.batch(step.sampling_key)
        others = loss_key(grad_fn, step)
        return train(state.params, state.optimizer_state, batch, others, step.noise_key, kwargs)

    return take_step


def step_in_parts(grad_fn: Any, optimizer: Any, kwargs: Mapping[str, Any]) -> TakeStep:
    """A step that takes the batch in any number of physical parts, and adds noise once."""
    noisy_grad = accumulated(grad_fn)

    @functools.partial(jax.jit, donate_argnames=("optimizer_state", "grads"))
    def update(params: Any, optimizer_state: Any, grads: Any) -> State:
        return State(*optimized(optimizer, grads, optimizer_state, params))

    def take_step(state: State, loader: Loader, step: Step) -> tuple[State, Seen]:
        parts = loader.physical_batches(step.sampling_key)
        others = loss_key(grad_fn, step)
        value, grads, stats = noisy_grad(state.params, parts, *others, key=step.noise_key, **kwargs)
        seen = Seen(stats.size, value, stats.clipped_fraction, stats.nonfinite_count)
        return update(state.params, state.optimizer_state, grads), seen

    return take_step


def counted(found: Any, is_padding: Any) -> Seen:
    """What was seen of one part of a batch, as sums over its examples; add up those of all parts."""
    size, stats = jnp.sum(~jnp.asarray(is_padding)), found.stats
    return Seen(size, found.value * size, stats.clipped_fraction * size, stats.nonfinite_count)


def seen_of(sums: Seen) -> Seen:
    """The means over all examples."""
    count = jnp.maximum(sums.size, 1)
    return sums._replace(loss=sums.loss / count, clipped=sums.clipped / count)


def optimized(optimizer: Any, grads: Any, optimizer_state: Any, params: Any) -> tuple[Any, Any]:
    """New parameters, and a new state of the optimizer."""
    optax = require("optax", "optax")
    updates, optimizer_state = optimizer.update(grads, optimizer_state, params)
    return optax.apply_updates(params, updates), optimizer_state


def loss_key(grad_fn: Any, step: Step) -> tuple[jax.Array, ...]:
    """The key for a loss that takes one, else nothing. A resumed run makes the same key."""
    takes_key = grad_fn.signature.prng_argnum is not None
    return (jax.random.fold_in(step.sampling_key, LOSS),) if takes_key else ()


def initial_state(
    optimizer: Any, params: Any, private: CorrelatedRelease | None = None, clip_norms: Any = ()
) -> State:
    """Copies with fixed types: the caller's arrays stay intact, and all steps share types."""
    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise TypeError(
            f"optimizer must be an optax.GradientTransformation such as optax.adam(1e-3), got "
            f"{type(optimizer).__name__}."
        )
    own = _copy(params)
    noise_state = () if private is None else _copy(private.init(own))
    return State(own, _copy(optimizer.init(own)), noise_state, clip_norms)


def rehearse(take_step: TakeStep, state: State, nobody: Loader, noise_key: jax.Array) -> None:
    """Takes one step on a batch of padding and discards the result, before the ledger is asked.

    This compiles everything, and a mistake in the loss shows up before a step is paid for. It uses
    no example and no key of the ledger.
    """
    copied = state._replace(
        optimizer_state=_copy(state.optimizer_state), noise_state=_copy(state.noise_state)
    )
    take_step(copied, nobody, Step(0, noise_key, bk_jax.random.key()))


def _copy(tree: Any) -> Any:
    return jax.tree_util.tree_map_with_path(_copy_leaf, tree)


def _copy_leaf(path: Any, leaf: Any) -> jax.Array:
    try:
        return jnp.array(leaf, dtype=jnp.asarray(leaf).dtype)
    except TypeError as error:
        raise TypeError(
            f"params must be a tree of arrays; at {jax.tree_util.keystr(path) or 'its root'} there is a "
            f"{type(leaf).__name__}. Keep what is not trained out of it (equinox.partition, nnx.split)."
        ) from error
