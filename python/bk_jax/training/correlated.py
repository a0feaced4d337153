"""Steps whose noise is correlated over steps: the keys they need, and what is kept between them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax

from bk_jax.mechanisms import CorrelatedRelease
from bk_jax.privacy import Ledger, Step
from bk_jax.sampling import Loader, accumulated
from bk_jax.sampling.accumulate import summary
from bk_jax.training.steps import Seen, State, TakeStep, loss_key, optimized


def correlated_step(
    private: CorrelatedRelease, optimizer: Any, kwargs: Mapping[str, Any]
) -> TakeStep:
    """A step that takes the batch in any number of physical parts, and adds correlated noise once.

    The `noise_key` of its `Step` is an array of keys, newest first; see `take`.
    """
    adding = accumulated(private.grad_fn)

    @functools.partial(jax.jit, donate_argnames=("optimizer_state", "noise_state", "sums"))
    def update(
        params: Any, optimizer_state: Any, noise_state: Any, sums: Any, keys: Any, number: Any
    ) -> State:
        grads, noise_state = private.release(sums, noise_state, keys=keys, step=number, like=params)
        return State(*optimized(optimizer, grads, optimizer_state, params), noise_state)

    def take_step(state: State, loader: Loader, step: Step) -> tuple[State, Seen]:
        parts = loader.physical_batches(step.sampling_key)
        sums = adding.add_up(state.params, parts, *loss_key(private.grad_fn, step), **kwargs)
        value, stats = summary(sums)
        seen = Seen(stats.size, value, stats.clipped_fraction, stats.nonfinite_count)
        new = update(
            state.params,
            state.optimizer_state,
            state.noise_state,
            sums.gradients,
            step.noise_key,
            step.number,
        )
        return new, seen

    return take_step


def take(ledger: Ledger, count: int) -> Step:
    """Takes a step of the ledger; as noise keys, those of the last `count` steps, newest first."""
    step = ledger.take()
    return step._replace(noise_key=ledger.recent_noise_keys(count))


def caught_up(private: CorrelatedRelease, state: State, ledger: Ledger, reached: int) -> State:
    """The state of step `reached`, with the noise of the steps that were forfeited since.

    Their draws are part of what the ledger counts, so later noise is what it would have been.
    """
    lost = ledger.steps - reached
    if lost == 0 or private.noise.arrays_stored == 0:
        return state
    skip = jax.jit(private.skip)
    noise_state = state.noise_state
    for number, key in enumerate(ledger.recent_noise_keys(lost)[::-1], reached):
        noise_state = skip(state.params, noise_state, keys=key[None], step=number)
    return state._replace(noise_state=noise_state)
