"""A whole run from plan, ledger, loader and optimizer: compiled once, and resumed bit for bit."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import bk_jax
from bk_jax import privacy, sampling

DATA = {
    "x": np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32),
    "y": np.random.default_rng(1).integers(0, 2, 60).astype(np.float32),
}
OPTIMIZER = optax.adam(0.1)


PARAMS = {"w": np.zeros(4, np.float32), "b": np.float32(0)}


@functools.cache
def start():
    return PARAMS, jax.tree.map(np.asarray, OPTIMIZER.init(PARAMS))


def make_plan(max_batch_size):
    return privacy.PrivacyPlan(
        num_examples=60,
        batch_size=4,
        steps=8,
        delta=1e-3,
        noise_multiplier=1.0,
        max_batch_size=max_batch_size,
        pld_interval=0.02,
    )


class Run:
    """A training loop as a user writes it, which counts how often its loss is traced."""

    def __init__(self, plan):
        self.traces = 0
        self.sizes = []
        self.plan = plan
        sampler = sampling.PoissonSampler.of(plan)
        self.loader = sampling.Loader(DATA, sampler, physical_batch_size=4)
        self.grad_fn = bk_jax.dp_value_and_grad(self.loss, **plan.options())
        self.accumulated = sampling.accumulated(self.grad_fn)
        self.whole = jax.jit(self.whole_step)
        self.update = jax.jit(self.apply)

    def loss(self, params, batch):
        self.traces += 1
        logits = batch["x"] @ params["w"] + params["b"]
        return jnp.mean(optax.sigmoid_binary_cross_entropy(logits, batch["y"]))

    def apply(self, state, grads):
        params, optimizer_state = state
        updates, optimizer_state = OPTIMIZER.update(grads, optimizer_state, params)
        return optax.apply_updates(params, updates), optimizer_state

    def whole_step(self, state, batch, key):
        padding = batch.is_padding_example
        _, grads = self.grad_fn(state[0], batch.examples, key=key, is_padding_example=padding)
        return self.apply(state, grads)

    def step(self, state, step):
        if self.plan.max_batch_size is not None:
            return self.whole(state, self.loader.batch(step.sampling_key), step.noise_key)
        batches = list(self.loader.physical_batches(step.sampling_key))
        self.sizes.append(sum(int((~batch.is_padding_example).sum()) for batch in batches))
        _, grads = self.accumulated(state[0], batches, key=step.noise_key)
        return self.update(state, grads)

    def train(self, ledger, state, steps):
        for _ in range(steps):
            state = self.step(state, ledger.take())
        return jax.tree.map(np.asarray, state)


@pytest.mark.parametrize("max_batch_size", [None, 12], ids=["physical", "truncated"])
def test_a_resumed_run_is_an_uninterrupted_one_bit_for_bit(tmp_path, max_batch_size):
    plan = make_plan(max_batch_size)
    run = Run(plan)
    key = bk_jax.random.key(9)
    with privacy.open_ledger(tmp_path / "whole", plan, key=key) as ledger:
        whole = run.train(ledger, start(), 1)
        first = run.traces
        whole = run.train(ledger, whole, 7)
    assert run.traces == first, "batches of other sizes were compiled again"
    with privacy.open_ledger(tmp_path / "cut", plan, key=key) as ledger:
        state = run.train(ledger, start(), 3)
        saved = ledger.checkpoint()
    with privacy.open_ledger(tmp_path / "cut", plan, checkpoint=saved) as ledger:
        state = run.train(ledger, state, 5)
        assert ledger.epsilon() == plan.epsilon()
    jax.tree.map(np.testing.assert_array_equal, state, whole)
    assert max_batch_size or len(set(run.sizes)) > 2


def test_an_empty_batch_still_takes_a_noisy_step(tmp_path):
    plan = make_plan(None)
    run = Run(plan)
    empty = sampling.PoissonSampler(60, 1e-30)
    run.loader = sampling.Loader(DATA, empty, physical_batch_size=4)
    with privacy.open_ledger(tmp_path / "run", plan) as ledger:
        params, _ = run.train(ledger, start(), 1)
    assert run.sizes == [0]
    assert np.all(params["w"] != 0)
