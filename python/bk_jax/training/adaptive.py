"""Steps whose clip norms follow the gradients': norms are part of the state, votes of the sums."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax.mechanisms import AdaptiveClipping
from bk_jax.privacy import CorrelatedPlan, Step
from bk_jax.privacy.plans import Plan
from bk_jax.sampling import Loader
from bk_jax.sampling.batches import Batch
from bk_jax.training.steps import Seen, State, TakeStep, counted, loss_key, optimized, seen_of


def check_adaptive(plan: Plan, grad_fn: Any, grid_bits: int | None) -> Any:
    """The norms that a run starts with, in float32; `()` if they are not adaptive."""
    clip = None if isinstance(plan, CorrelatedPlan) else plan.adaptive
    if clip is None:
        return ()
    if grid_bits is not None:
        raise ValueError(
            "grid_bits fixes the grid by the clip norm, and the plan has adaptive clipping, whose norm "
            "moves. Use a plan without adaptive, or leave grid_bits out."
        )
    norms = jax.tree_util.tree_map(jnp.float32, grad_fn.l2_clip_norm)
    votes = jnp.zeros(clip.groups)
    jax.eval_shape(clip.moved, norms, votes, key=jax.random.key(0))  # as many norms as groups
    return norms


def adaptive_step(
    clip: AdaptiveClipping, grad_fn: Any, optimizer: Any, kwargs: Mapping[str, Any]
) -> TakeStep:
    """A step that takes the batch in any number of physical parts, adds noise once, and moves norms.

    Gradient and counts have noise of their own, both from the step's noise key.
    """

    @jax.jit
    def part(state: State, batch: Batch, others: Any, kwargs: Any, number: Any) -> Any:
        others = tuple(jax.random.fold_in(key, number) for key in others)
        padding = jnp.asarray(batch.is_padding_example)
        found = _clipping_to(grad_fn, state.clip_norms).clipped_sums(
            state.params, batch.examples, *others, is_padding_example=padding, **kwargs
        )
        votes = clip.votes(state.clip_norms, found.stats, is_padding_example=padding)
        return found.sums, votes, counted(found, padding)

    @functools.partial(jax.jit, donate_argnames=("optimizer_state", "sums"))
    def update(
        params: Any, optimizer_state: Any, norms: Any, sums: Any, votes: Any, key: Any
    ) -> State:
        grads = _clipping_to(grad_fn, norms).release(sums, key, like=params)
        moved = clip.moved(norms, votes, key=key)
        new = optimized(optimizer, grads, optimizer_state, params)
        return State(*new, clip_norms=moved)

    def take_step(state: State, loader: Loader, step: Step) -> tuple[State, Seen]:
        others, total = loss_key(grad_fn, step), None
        for number, batch in enumerate(loader.physical_batches(step.sampling_key)):
            found = part(state, batch, others, kwargs, number)
            total = found if total is None else jax.tree_util.tree_map(jnp.add, total, found)
        assert total is not None  # a loader has one part at least
        sums, votes, counts = total
        norms, key = state.clip_norms, step.noise_key
        new = update(state.params, state.optimizer_state, norms, sums, votes, key)
        return new, seen_of(counts)

    return take_step


def _clipping_to(grad_fn: Any, norms: Any) -> Any:
    return dataclasses.replace(grad_fn, l2_clip_norm=norms)
