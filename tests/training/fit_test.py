"""The trainer is the loop by hand, whether it is stopped and goes on or not."""

from __future__ import annotations

import dataclasses
import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.fits import ANY_SIZE, DATA, KEY, OPTIMIZER, PARAMS, PLAN, equal, fit, loss_fn

import bk_jax
from bk_jax import privacy, sampling


def with_dropout(params, batch, key, *, frozen):
    keep = jax.random.bernoulli(key, 0.5, batch["x"].shape)
    batch = {"x": jnp.where(keep, batch["x"], 0), "y": batch["y"]}
    return loss_fn(params | {"b": params["b"] + frozen}, batch)


OFFSET = np.float32(0.5)


def grads_with_dropout(plan):
    """`(params, step) -> grads` by hand: a step's key for the loss comes of its sampling key."""
    grad_fn = bk_jax.dp_value_and_grad(with_dropout, prng_argnum=2, **plan.options())
    loader = sampling.Loader(DATA, sampling.PoissonSampler.of(plan), 4)

    @jax.jit
    def as_one(params, batch, loss_key, *, key, frozen):
        examples, padding = batch
        return grad_fn(
            params, examples, loss_key, key=key, is_padding_example=padding, frozen=frozen
        )

    in_parts = (sampling.accumulated(grad_fn), loader.physical_batches)
    noisy_grad, batch_of = (as_one, loader.batch) if plan.max_batch_size else in_parts

    def grads(params, step):
        batch, loss_key = batch_of(step.sampling_key), jax.random.fold_in(step.sampling_key, 2)
        return noisy_grad(params, batch, loss_key, key=step.noise_key, frozen=OFFSET)[1]

    return grads


@pytest.mark.parametrize("plan", [PLAN, ANY_SIZE], ids=["one program", "in parts"])
def test_the_loss_gets_a_key_of_every_step_and_its_further_arguments(tmp_path, plan):
    plan = dataclasses.replace(plan, steps=2)
    run = {"plan": plan, "key": KEY, "optimizer": optax.sgd(1.0), "prng_argnum": 2}
    result = fit(tmp_path / "fit", with_dropout, loss_kwargs={"frozen": OFFSET}, **run)
    params, grads = jax.tree.map(np.float32, PARAMS), grads_with_dropout(plan)
    with privacy.open_ledger(tmp_path / "by_hand", plan, key=KEY) as ledger:
        for step in ledger:
            params = jax.tree.map(lambda x, g: x - g, params, grads(params, step))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), result.params, params
    )


def test_noise_and_update_in_one_pass_end_where_steps_of_their_own_end(tmp_path):
    """The same noise and the same arithmetic: six steps of Adam differ by roundings alone."""
    plan = dataclasses.replace(PLAN, steps=6)
    made = {"optax": optax.adam(0.1), "bk_jax": bk_jax.optimizers.adam(0.1)}
    apart, fused = (
        fit(tmp_path / name, plan=plan, key=KEY, optimizer=made[name]).params for name in made
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), fused, apart)


class Loss:
    """The loss, counting how often it is traced."""

    def __init__(self):
        self.traces = 0

    def __call__(self, params, batch):
        self.traces += 1
        return loss_fn(params, batch)


class StopAt:
    """An `evaluate` by which someone asks to stop at its n-th call; notes the traces of a loss."""

    def __init__(self, calls, number, loss):
        self.calls, self.number, self.loss = calls, number, loss
        self.traces = []

    def __call__(self, params):
        self.traces.append(self.loss.traces)
        if len(self.traces) == self.calls:
            os.kill(os.getpid(), self.number)
        return {}


def by_hand(path, plan):
    """The loop of docs/training.md."""
    grad_fn = bk_jax.dp_value_and_grad(loss_fn, **plan.options())
    loader = sampling.Loader(DATA, sampling.PoissonSampler.of(plan), 4)
    noisy_grad = sampling.accumulated(grad_fn)

    @jax.jit
    def update(params, state, grads):
        updates, state = OPTIMIZER.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), PARAMS)
    state = OPTIMIZER.init(params)
    with privacy.open_ledger(path, plan, key=KEY) as ledger:
        for step in ledger:
            parts = loader.physical_batches(step.sampling_key)
            _, grads = noisy_grad(params, parts, key=step.noise_key)
            params, state = update(params, state, grads)
    return params


@pytest.mark.parametrize("plan", [PLAN, ANY_SIZE], ids=["as one", "in parts"])
def test_the_trainer_is_the_loop_by_hand(tmp_path, finished, plan):
    _, result = finished[plan]
    assert (result.steps, result.epsilon, result.stopped) == (8, plan.epsilon(), "budget")
    expected = by_hand(tmp_path / "run.ledger", plan)
    if plan is ANY_SIZE:
        equal(result.params, expected)
    jax.tree.map(  # in one piece the same sum comes in another order
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), result.params, expected
    )


@pytest.fixture
def not_ignored(number):
    """A shell starts programs in the background with SIGINT ignored, which `fit` respects."""
    before = signal.signal(number, signal.default_int_handler)
    yield
    signal.signal(number, before)


@pytest.mark.usefixtures("not_ignored")
@pytest.mark.parametrize(
    ("plan", "number"),
    [(PLAN, signal.SIGINT), (ANY_SIZE, signal.SIGTERM)],
    ids=["as one", "in parts"],
)
def test_a_stopped_run_goes_on_as_if_it_had_not_been_stopped(tmp_path, finished, plan, number):
    loss, before = Loss(), signal.getsignal(number)
    run = {"directory": tmp_path, "plan": plan, "key": KEY, "loss": loss, "report_every": 1}
    stop = StopAt(3, number, loss)
    first = fit(**run, evaluate=stop)
    assert (first.steps, first.stopped, first.epsilon) == (3, "interrupted", plan.epsilon(3))
    assert signal.getsignal(number) is before
    assert len(set(stop.traces)) == 1, "a step was compiled after the rehearsal"
    watch = StopAt(-1, number, loss)
    last = fit(**run, evaluate=watch)
    assert (last.steps, last.stopped) == (8, "budget")
    assert len(set(watch.traces)) == 1, "restored arrays were compiled for twice"
    whole = finished[plan][1]
    equal((last.params, last.optimizer_state), (whole.params, whole.optimizer_state))
    assert [point.step for point in last.history] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_finished_run_is_left_as_it_is(finished):
    path, done = finished[PLAN]
    again = fit(path, loss=None)
    equal(again.params, done.params)
    assert (again.steps, again.epsilon, again.history) == (8, done.epsilon, done.history)
