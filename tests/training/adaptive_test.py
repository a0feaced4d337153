"""The trainer with clip norms that follow the gradients', and what it does after a crash."""

from __future__ import annotations

import dataclasses
import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.fits import ANY_SIZE, DATA, KEY, OPTIMIZER, PARAMS, PLAN, equal, fit, loss_fn

import bk_jax
from bk_jax import mechanisms, privacy, sampling

CLIP = mechanisms.AdaptiveClipping(batch_size=8, count_stddev=2.0)
FLAT = dataclasses.replace(PLAN, adaptive=CLIP)
PARTS = dataclasses.replace(ANY_SIZE, adaptive=CLIP)
GROUPS = dataclasses.replace(ANY_SIZE, adaptive=dataclasses.replace(CLIP, groups=2))
NORMS = {"w": 0.5, "b": 0.25}
KINDS = {
    "one program": (FLAT, {}),
    "in parts": (PARTS, {}),
    "groups": (GROUPS, {"l2_clip_norm": NORMS}),
}
EVERY_KIND = pytest.mark.parametrize(("plan", "options"), KINDS.values(), ids=KINDS)


def by_hand(path, plan, norms=1.0):
    """The loop of docs/mechanisms.md, on whole batches."""
    clip, sigma = plan.adaptive, plan.options()["noise_multiplier"]

    @jax.jit
    def step(params, state, norms, batch, key):
        padding = batch.is_padding_example
        grad_fn = bk_jax.dp_value_and_grad(
            loss_fn, l2_clip_norm=norms, noise_multiplier=sigma, normalize_by=8, return_stats=True
        )
        _, grads, stats = grad_fn(params, batch.examples, key=key, is_padding_example=padding)
        updates, state = OPTIMIZER.update(grads, state, params)
        params = jax.tree.map(jnp.add, params, updates)
        return params, state, clip.update(norms, stats, key=key, is_padding_example=padding)

    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), PARAMS)
    state, norms = OPTIMIZER.init(params), jax.tree.map(jnp.float32, norms)
    loader = sampling.Loader(DATA, sampling.PoissonSampler.of(plan), 60)
    with privacy.open_ledger(path, plan, key=KEY) as ledger:
        for taken in ledger:
            (batch,) = loader.physical_batches(taken.sampling_key)
            params, state, norms = step(params, state, norms, batch, taken.noise_key)
    return params, norms


@EVERY_KIND
def test_the_trainer_is_the_loop_by_hand(tmp_path, plan, options):
    result = fit(tmp_path / "fit", plan=plan, key=KEY, **options)
    assert (result.steps, result.epsilon, result.stopped) == (8, plan.epsilon(), "budget")
    params, norms = by_hand(tmp_path / "run.ledger", plan, options.get("l2_clip_norm", 1.0))
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)  # noqa: E731
    jax.tree.map(close, (result.params, result.clip_norms), (params, norms))
    start = jax.tree.leaves(options.get("l2_clip_norm", 1.0))
    assert all(a != b for a, b in zip(jax.tree.leaves(result.clip_norms), start, strict=True))


@EVERY_KIND
def test_a_run_that_stops_and_goes_on_ends_with_the_same_bits(tmp_path, plan, options):
    whole = fit(tmp_path / "whole", plan=plan, key=KEY, **options)
    half = fit(tmp_path / "parts", plan=plan, key=KEY, **options, stop_at_epsilon=plan.epsilon(4))
    again = fit(tmp_path / "parts", plan=plan, stop_at_epsilon=plan.epsilon(4), **options)
    equal(again.clip_norms, half.clip_norms)
    last = fit(tmp_path / "parts", plan=plan, **options)
    equal((last.params, last.clip_norms), (whole.params, whole.clip_norms))


def test_steps_lost_in_a_crash_leave_the_norms_where_they_were(tmp_path):
    """The ledger went to step 6, the checkpoint is of step 4."""
    run = {"plan": PARTS, "key": KEY}
    half = fit(tmp_path / "run", **run, stop_at_epsilon=PARTS.epsilon(4))
    kept = shutil.copytree(tmp_path / "run" / "checkpoints", tmp_path / "kept")
    fit(tmp_path / "run", plan=PARTS, stop_at_epsilon=PARTS.epsilon(6))
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    shutil.copytree(kept, tmp_path / "run" / "checkpoints")
    with pytest.raises(privacy.LedgerError, match=r"6 steps on record.*made at step 4"):
        fit(tmp_path / "run", plan=PARTS)
    forfeited = {"plan": PARTS, "forfeit": True, "stop_at_epsilon": PARTS.epsilon(6)}
    lost = fit(tmp_path / "run", **forfeited)
    equal(lost.clip_norms, half.clip_norms)
    assert lost.epsilon == PARTS.epsilon(6)


def test_norms_come_down_to_the_gradients(tmp_path):
    """Gradients of at most 0.05 clipped to 1: every step votes for less."""
    clip = dataclasses.replace(CLIP, learning_rate=0.5, count_stddev=1.0)
    plan = dataclasses.replace(ANY_SIZE, adaptive=clip, steps=20, noise_multiplier=0.8)
    tiny = lambda params, batch: 0.01 * loss_fn(params, batch)  # noqa: E731
    result = fit(tmp_path, tiny, plan=plan, key=KEY, checkpoint_every=20)
    assert 0 < float(result.clip_norms) < 0.1


def test_a_run_without_it_has_no_norms(finished):
    assert finished[PLAN][1].clip_norms == ()


@pytest.mark.parametrize(
    ("plan", "options", "message"),
    [
        (
            GROUPS,
            {},
            "made for groups=2; got 1 clip norms. Pass l2_clip_norm as a tree of that many",
        ),
        (PARTS, {"l2_clip_norm": NORMS}, "was made for groups=1; got 2 clip norms"),
        (
            dataclasses.replace(PARTS, accountant="rdp_whole"),
            {"grid_bits": 16},
            "grid_bits fixes the grid by the clip norm, and the plan has adaptive clipping",
        ),
    ],
)
def test_errors(tmp_path, plan, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        fit(tmp_path / "run", plan=plan, **options)
    assert not (tmp_path / "run").exists()
