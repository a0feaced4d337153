"""The parts of `tax`, exactly: ratios on a clock that does not run, spans, owners, rates."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bk_jax
from bk_jax.hlo import load
from bk_jax.overhead.attribution import CLIPPING, SHARED, find_owners
from bk_jax.overhead.measure import plain_step, private_step
from bk_jax.overhead.seconds import (
    Event,
    Rates,
    Span,
    Work,
    divide,
    executed,
    fit_rates,
    rates_by_flops,
    summarize,
    work_of,
)
from bk_jax.overhead.timing import Timing, interleave
from tax.losses import PROBLEMS


class FakeClock:
    """Time passes only while a step runs; `durations` are taken in turn."""

    def __init__(self):
        self.now = 0.0
        self.log = []

    def __call__(self):
        return self.now

    def step(self, name, *durations):
        state = {"calls": 0}

        def run():
            self.now += durations[state["calls"] % len(durations)]
            self.log.append(name)
            state["calls"] += 1

        return run


# --- timing ---


def test_steady_steps_give_exact_ratios():
    clock = FakeClock()
    others = {"b": clock.step("b", 1.5), "c": clock.step("c", 0.25)}
    found = interleave(clock.step("a", 0.5), others, budget=1e-9, rounds=3, clock=clock)
    assert found == {"b": Timing(1.5, 3.0, 3.0, 3.0, 6), "c": Timing(0.25, 0.5, 0.5, 0.5, 6)}


def test_steps_are_interleaved_after_a_warm_up():
    clock = FakeClock()
    others = {"b": clock.step("b", 1.0), "c": clock.step("c", 1.0)}
    interleave(clock.step("a", 1.0), others, budget=1e-9, rounds=2, clock=clock)
    assert "".join(clock.log) == "aabbcc" + "abbaacca" * 2


def test_the_first_call_does_not_count():
    clock = FakeClock()
    slow_start = clock.step("b", 1000.0, *[2.0] * 20)
    found = interleave(clock.step("a", 1.0), {"b": slow_start}, budget=1e-9, rounds=2, clock=clock)
    assert found["b"] == Timing(2.0, 2.0, 2.0, 2.0, 4)


def test_a_median_of_pairs_is_not_moved_by_one_disturbance():
    clock = FakeClock()
    disturbed = clock.step("b", 3.0, 3.0, 3.0, 3.0, 300.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0)
    found = interleave(clock.step("a", 1.0), {"b": disturbed}, budget=1e-9, rounds=5, clock=clock)
    assert (found["b"].ratio, found["b"].low, found["b"].high) == (3.0, 3.0, 3.0)


def test_the_budget_sets_the_rounds_and_short_steps_are_grouped():
    clock = FakeClock()
    steps = {"b": clock.step("b", 0.5)}
    found = interleave(clock.step("a", 0.5), steps, budget=20.0, rounds=2, clock=clock)
    assert found["b"].pairs == 20  # ten rounds of two seconds
    clock = FakeClock()
    steps = {"b": clock.step("b", 2.0**-11)}
    interleave(clock.step("a", 2.0**-11), steps, budget=1e-9, rounds=1, clock=clock)
    assert "".join(clock.log) == "aabb" + "aaaa" + "bbbbbbbb" + "aaaa"


# --- spans ---


def test_spans_that_overlap_share_the_time():
    spans = [Span("a", 0, 4), Span("b", 2, 6), Span("a", 8, 9)]
    assert divide(0, 10, spans) == {"a": 4.0, "b": 3.0, "": 3.0}


def test_a_loop_has_the_time_in_which_nothing_runs_inside():
    spans = [Span("while", 1, 9, holds=True), Span("dot", 2, 5), Span("dot", 5, 8)]
    assert divide(0, 10, spans) == {"while": 2.0, "dot": 6.0, "": 2.0}


def test_spans_are_cut_at_the_step():
    assert divide(2, 4, [Span("a", 0, 3), Span("b", 5, 6), Span("c", 3, 3)]) == {"a": 1.0, "": 1.0}
    assert divide(0, 1, []) == {"": 1.0}


@given(
    st.lists(
        st.builds(
            lambda name, start, length, holds: Span(name, start, start + length, holds),
            st.sampled_from("abc"), st.integers(0, 50), st.integers(0, 50), st.booleans(),
        )
    )
)  # fmt: skip
def test_the_parts_are_the_whole(spans):
    parts = divide(10, 60, spans)
    assert min(parts.values()) >= 0
    np.testing.assert_allclose(sum(parts.values()), 50, rtol=1e-12)


# --- profiles ---


def event(name, start, end, **stats):
    return Event(name, start, end, stats)


def operation(name, start, end, module="jit_bk_tax_plain", **stats):
    return event(name, start, end, hlo_op=name, hlo_module=module, **stats)


def test_profiles_keep_the_quieter_half_and_wait_for_the_end():
    events = [
        event("bk_tax:plain", 0, 10), event("bk_tax:plain", 100, 120),
        event("bk_tax:private", 200, 300),
        operation("dot", 1, 2, _p=7), event("end: dot", 5, 6, _c=7),
        operation("add", 7, 9), operation("dot", 101, 119),
        operation("add", 3, 8, module="jit_other"), operation("unknown", 2, 3), event("noise", 0, 9),
    ]  # fmt: skip
    profile = summarize(events, "plain", {"dot", "add"}, set())
    assert (profile.seconds, profile.steps) == (10e-9, 1)
    assert profile.operations == pytest.approx({"dot": 5e-9, "add": 2e-9, "": 3e-9})


def test_profiles_without_operations_are_none():
    assert summarize([event("bk_tax:plain", 0, 10)], "plain", {"dot"}, set()) is None
    assert summarize([operation("dot", 0, 10)], "plain", {"dot"}, set()) is None
    assert summarize([], "plain", {"dot"}, set()) is None


# --- owners ---


@functools.cache
def compiled(name):
    problem = PROBLEMS[name]()
    grad_fn = bk_jax.dp_value_and_grad(problem.loss, **problem.options)
    key = bk_jax.random.key(0)
    args = (problem.params, problem.batch)
    steps = (
        plain_step(problem.loss, grad_fn.signature, args, "plain"),
        private_step(grad_fn, args, key, "private"),
    )
    return [load(step.compiled)[0] for step in steps], list(problem.routes)


def products(module, owners):
    """Owners of matrix products and convolutions, in order; also of those in a fusion."""
    return sorted(
        path
        for instruction in executed(module)
        if does_product(module, instruction)
        for path in owners[instruction.name]
    )


def does_product(module, instruction):
    if instruction.opcode in ("dot", "convolution"):
        return True
    inside = [i for c in instruction.called for i in module.computations[c].instructions]
    return instruction.opcode == "fusion" and any(does_product(module, i) for i in inside)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mlp", ["first/w", "second/w"]),
        ("conv", ["head", "kernel"]),
        ("scan", ["layers"]),
        ("tied", ["w"]),  # the other one is added to a scatter
        ("aux", [""]),
        ("microbatches", ["a", "b"]),
    ],
)
def test_weight_gradients_of_the_plain_step_belong_to_their_weight(name, expected):
    (plain, _), paths = compiled(name)
    owned = [path for path in products(plain, find_owners(plain, paths)) if path != SHARED]
    assert set(expected) <= set(owned)


@pytest.mark.native
@pytest.mark.parametrize("name", PROBLEMS)
def test_our_calls_belong_to_parameters(name):
    (_, private), paths = compiled(name)
    owners = find_owners(private, paths)
    calls = {call.name: (call.target, owners[call.name]) for call in private.bk_calls}
    assert calls
    for target, owner in calls.values():
        expected = {CLIPPING} if target == "bk_clip_factor" else set(paths)
        assert set(owner) <= expected, (target, owner)
    (noised,) = [owner for t, owner in calls.values() if t == "bk_gaussians"]
    assert noised == tuple(paths)


def test_the_forward_pass_is_shared_in_both_steps():
    modules, paths = compiled("mlp")
    for module in modules:
        owners = find_owners(module, paths)
        assert products(module, owners).count(SHARED) >= 2  # two layers, forward


def test_names_with_commas_and_brackets_are_parameters_too():
    params = {"a,b": np.ones((2, 3), np.float32), "c[0]": np.ones((3, 2), np.float32)}

    def loss(params, x):
        return jnp.mean((jnp.tanh(x @ params["a,b"]) @ params["c[0]"]) ** 2)

    grad_fn = bk_jax.dp_value_and_grad(loss, noise_multiplier=0.0)
    step = private_step(grad_fn, (params, np.ones((4, 2, 2), np.float32)), None, "private")
    owners = find_owners(load(step.compiled)[0], ["a,b", "c[0]"])
    assert {("a,b",), ("c[0]",)} <= set(owners.values())


# --- prediction ---


def test_rates_are_those_of_products_and_of_everything_else():
    work = {"dot": Work(100, 10, True), "add": Work(7, 20, False), "unseen": Work(10**9, 1, True)}
    rates = fit_rates(work, {"dot": 200.0, "add": 60.0, "": 5.0})
    assert rates == Rates(2.0, 3.0)
    assert rates.seconds(Work(100, 10, True)) == 200.0
    assert rates.seconds(Work(100, 100, False)) == 300.0
    assert fit_rates(work, {}) == fit_rates({"a": Work(0, 0, True)}, {"a": 1.0}) == Rates(0.0, 0.0)
    assert rates_by_flops(work).seconds(Work(10**9 + 107, 5, True)) == pytest.approx(1.0)
    assert rates_by_flops({}) == Rates(0.0, 0.0)


def test_work_counts_loops_as_often_as_they_run():
    (plain, _), _ = compiled("scan")
    flops = sum(w.flops for n, w in work_of(plain).items() if does_product(plain, plain.by_name[n]))
    assert flops >= 5 * 3 * 2 * 4 * 3 * 8 * 8  # layers, passes, multiply-adds


def test_compiled_steps_are_the_plain_and_the_private_gradients():
    problem = PROBLEMS["mlp"]()
    args = (problem.params, problem.batch)
    grad_fn = bk_jax.dp_value_and_grad(problem.loss, noise_multiplier=0.0, l2_clip_norm=1e9)
    value, grads = plain_step(problem.loss, grad_fn.signature, args, "plain").run()
    private_value, private_grads = private_step(grad_fn, args, None, "private").run()
    np.testing.assert_allclose(value, private_value, rtol=1e-5)
    for mean, total in zip(grads, private_grads, strict=True):
        np.testing.assert_allclose(4 * mean, total, rtol=1e-4, atol=1e-6)


def test_the_mean_of_a_loss_of_bare_examples():
    problem = PROBLEMS["aux"]()
    grad_fn = bk_jax.dp_value_and_grad(problem.loss, **problem.options)
    step = plain_step(problem.loss, grad_fn.signature, (problem.params, problem.batch), "plain")
    (value, aux), (grad,) = step.run()
    losses = [problem.loss(problem.params, x)[0] for x in problem.batch]
    np.testing.assert_allclose(value, np.mean(losses), rtol=1e-5)
    assert aux["y"].shape == (4, 3, 8)
    expected = jax.grad(lambda w: problem.loss(w, problem.batch)[0] / 4)(problem.params)
    np.testing.assert_allclose(grad, expected, rtol=1e-4)


@pytest.mark.parametrize("keep_batch_dim", [True, False])
def test_dropout_keys_reach_the_plain_step(keep_batch_dim):
    """The loss is proportional to bits of its key, so it says which keys it saw."""

    def loss(w, x, key):
        return jnp.mean(w * x) * jax.random.bits(key, (), jnp.uint16).astype(jnp.float32)

    options = {"prng_argnum": 2, "keep_batch_dim": keep_batch_dim}
    grad_fn = bk_jax.dp_value_and_grad(loss, **options)
    key = jax.random.key(3)
    args = (np.float32(2), np.ones((4, 5), np.float32), key)
    value, _ = plain_step(loss, grad_fn.signature, args, "plain").run()
    keys = [key] if keep_batch_dim else list(jax.random.split(key, 4))
    expected = np.mean([int(jax.random.bits(k, (), jnp.uint16)) for k in keys])
    np.testing.assert_allclose(value, 2 * expected, rtol=1e-6)
