"""Steps whose noise is on a grid: integers are added up over the parts of a batch."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax.mechanisms import GridRelease, on_grid
from bk_jax.privacy import Step
from bk_jax.privacy.plans import Plan
from bk_jax.sampling import Loader
from bk_jax.training.steps import Seen, State, TakeStep, counted, loss_key, optimized, seen_of


def check_grid(plan: Plan, grad_fn: Any, bits: int) -> GridRelease:
    """The release of a plan whose accountant covers a grid, with room for its batches."""
    if getattr(plan, "accountant", None) != "rdp_whole":
        raise ValueError(
            "noise on a grid is accounted for at whole orders: make the plan, a PrivacyPlan, with "
            'accountant="rdp_whole".'
        )
    private = on_grid(grad_fn, bits=bits)
    needed = min(plan.num_examples, int(2 * plan.batch_size) + 100)
    if private.most_examples < needed:
        raise ValueError(
            f"grid_bits={bits} leaves room for {private.most_examples} examples in a sum, but batches "
            f"of {plan.batch_size:g} on average may have {needed}. Pass fewer bits."
        )
    return private


def grid_step(private: GridRelease, optimizer: Any, kwargs: Mapping[str, Any]) -> TakeStep:
    """A step that takes the batch in any number of physical parts, and adds discrete noise once."""

    @jax.jit
    def part(params: Any, batch: Any, others: Any, kwargs: Any, number: Any) -> Any:
        others = tuple(jax.random.fold_in(key, number) for key in others)
        found = private.clipped_sums(
            params, batch.examples, *others, is_padding_example=batch.is_padding_example, **kwargs
        )
        return found.sums, counted(found, batch.is_padding_example)

    @functools.partial(jax.jit, donate_argnames=("optimizer_state", "sums"))
    def update(params: Any, optimizer_state: Any, sums: Any, key: Any) -> State:
        grads = private.release(sums, key, like=params)
        return State(*optimized(optimizer, grads, optimizer_state, params))

    def take_step(state: State, loader: Loader, step: Step) -> tuple[State, Seen]:
        others = loss_key(private.grad_fn, step)
        total: Any = None
        for number, batch in enumerate(loader.physical_batches(step.sampling_key)):
            found = part(state.params, batch, others, kwargs, number)
            total = found if total is None else jax.tree_util.tree_map(jnp.add, total, found)
        sums, counts = total
        new = update(state.params, state.optimizer_state, sums, step.noise_key)
        return new, seen_of(counts)

    return take_step
