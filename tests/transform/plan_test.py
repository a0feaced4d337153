"""Plan: which sites are one weight, which are several, and what is tapped instead."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from bk_jax.planning import plan as plan_module
from transform.steps import count_up, plan_of

W, X = count_up(4, 4), count_up(2, 4)
IDS = np.int32([0, 1, 1])


def kinds(plan):
    return [block.kind for block in plan.blocks]


def test_disjoint_slices_are_weights_of_their_own():
    plan = plan_of(lambda w, x: jnp.sum(x @ w[:, :2]) + jnp.sum(jnp.tanh(x @ w[:, 2:])), [W], X)
    assert kinds(plan) == ["dense", "dense"]
    assert not plan.tapped


def interleaved(w, x):
    even, odd = (lax.slice_in_dim(w, start, 4, 2, axis=1) for start in (0, 1))
    return jnp.sum(x @ even) + jnp.sum(jnp.tanh(x @ odd))


def test_interleaved_slices_are_disjoint():
    plan = plan_of(interleaved, [W], X)
    assert len(plan.blocks) == 2


def test_overlapping_slices_are_tapped():
    plan = plan_of(lambda w, x: jnp.sum(x @ w[:, :3]) + jnp.sum(jnp.tanh(x @ w[:, 2:])), [W], X)
    assert not plan.blocks
    assert "used in different ways at" in plan.tapped[0]


def test_overlap_is_assumed_where_counting_would_take_long(monkeypatch):
    monkeypatch.setattr(plan_module, "COUNTABLE_ELEMENTS", 3)
    plan = plan_of(lambda w, x: jnp.sum(x @ w[:, :2]) + jnp.sum(jnp.tanh(x @ w[:, 2:])), [W], X)
    assert list(plan.tapped) == [0]


def test_a_weight_used_twice_is_one_block_with_all_tokens():
    plan = plan_of(lambda w, x: jnp.sum(jnp.tanh(x @ w) @ w.T), [W], X)
    (block,) = plan.blocks
    assert block.cost.t == 4
    assert (block.kind, block.leaves) == ("dense", (0,))


def test_tokens_and_weights_of_scans_are_counted():
    def loss(w, v, x):
        step = lambda h, wi: (jnp.tanh(h @ wi @ v), None)  # noqa: E731
        return jnp.sum(lax.scan(step, x, w)[0])

    plan = plan_of(loss, [count_up(5, 4, 4), W], X)
    assert [(b.cost.n, b.cost.t) for b in plan.blocks] == [(5, 2), (1, 10)]


def test_a_table_looked_up_and_multiplied_by_is_tied():
    plan = plan_of(lambda w, i: jnp.sum(jnp.tanh(w[i]) @ w.T), [count_up(5, 4)], IDS)
    assert kinds(plan) == ["tied"]
    assert plan.blocks[0].cost.t == 3


def test_parameters_joined_in_one_product_are_one_weight():
    plan = plan_of(lambda w, v, x: jnp.sum(x @ jnp.concatenate([w, v], 1)), [W, W], X)
    assert [block.leaves for block in plan.blocks] == [(0, 1)]


def joined(w, v, x):
    return jnp.sum(x @ jnp.concatenate([w, v], 1))


REASONS = {
    "joined with parameters of another clip group or scale at": (joined, [W, W], X, {"groups": [0, 1]}),
    "joined with itself at": (
        lambda w, x: jnp.sum(x @ jnp.concatenate([w, w], 1)), [W], X, {}
    ),
    "looked up along different axes at": (
        lambda w, i: jnp.sum(jnp.tanh(w[i])) + jnp.sum(jnp.sin(w[:, i])), [W], IDS, {}
    ),
    "looked up and multiplied by inside a scan at": (
        lambda w, i: lax.scan(lambda h, wi: (h + jnp.sum(wi[i] @ wi), None), 0.0, w)[0],
        [count_up(2, 3, 3)], IDS, {},
    ),
    "used by cumsum at": (lambda w, x: jnp.sum(x @ jnp.cumsum(w, 0)), [W], X, {}),
    "asked for": (lambda w, x: jnp.sum(x @ w), [W], X, {"routes": {"w*": "leaf"}}),
    "chosen by the method": (lambda w, x: jnp.sum(x @ w), [W], X, {"method": "opacus"}),
}  # fmt: skip


@pytest.mark.parametrize("reason", REASONS)
def test_reasons_to_tap(reason):
    loss, weights, example, options = REASONS[reason]
    plan = plan_of(loss, weights, example, **options)
    assert not plan.blocks
    assert list(plan.tapped) == list(range(len(weights)))
    for why in plan.tapped.values():
        assert why.startswith(reason)


def test_a_tapped_parameter_takes_those_that_it_is_joined_with():
    def loss(w, v, u, x):
        both = jnp.sum(x @ jnp.concatenate([w, v], 1)) + jnp.sum(x @ jnp.concatenate([v, u], 1))
        return both + jnp.sum(jnp.exp(w))

    plan = plan_of(loss, [W, W, W], X)
    assert sorted(plan.tapped) == [0, 1, 2]
    assert plan.tapped[0].startswith("used by exp at")


def test_unused_parameters_are_listed():
    plan = plan_of(lambda w, v, x: jnp.sum(x @ w), [W, W], X)
    assert plan.unused == (1,)


def test_a_parameter_that_was_left_out_is_an_error(monkeypatch):
    monkeypatch.setattr(plan_module, "_overlapping", lambda sites, leaves: [])
    with pytest.raises(AssertionError, match=r"left out the parameters \['w0'\].* cost privacy"):
        plan_of(lambda w, x: jnp.sum(x @ w), [W], X)
