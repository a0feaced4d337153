"""Layers that read the same activations: one ghost norm for all of them, and when not."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.oracle import check_against_oracle

from bk_jax.planning import plan as plan_module
from transform.steps import count_up, plan_of

T, D = 5, 16
WEIGHTS = [count_up(D, D), count_up(D, D), count_up(D, 24)]
X = count_up(T, D)


@pytest.fixture(autouse=True)
def _short_examples_share(monkeypatch):
    monkeypatch.setattr(plan_module, "SHARED_POSITIONS", 2)


def squares(*arrays):
    return sum(jnp.sum(jnp.tanh(array) ** 2) for array in arrays)


def project(q, k, v, x):
    return squares(
        x @ q, jnp.einsum("td,de->te", x, k), lax.dot_general(v, x, (((0,), (1,)), ((), ())))
    )


def test_query_key_and_value_are_one_call():
    assert plan_of(project, WEIGHTS, X).norm_calls == ((0, 1, 2),)


def test_every_block_is_in_one_call():
    loss = lambda q, k, v, x: project(q, k, v, x) + squares(jnp.sin(x) @ q.T, x[:2] @ k[:, :2])  # noqa: E731
    plan = plan_of(loss, WEIGHTS, X)
    assert sorted(n for call in plan.norm_calls for n in call) == list(range(len(plan.blocks)))


def different_inputs(q, k, v, x):
    layer = jax.jit(lambda w, x: x @ w)  # one jaxpr, entered with two arrays
    return squares(layer(q, x), layer(k, 2 * x), layer(v, x.reshape(T, D)[::-1]))


def different_axes(q, k, v, x):
    square = x[:, :T]
    return squares(square @ q[:T], square.T @ k[:T], square @ v[:T])


@pytest.mark.parametrize(
    ("loss", "calls"),
    [(different_inputs, ((0,), (1,), (2,))), (different_axes, ((0, 2), (1,)))],
)
def test_other_arrays_and_other_axes_are_not_shared(loss, calls):
    ghost = {f"w{i}": "ghost" for i in range(3)}
    assert plan_of(loss, WEIGHTS, X, routes=ghost).norm_calls == calls


def test_few_positions_are_not_worth_a_copy(monkeypatch):
    monkeypatch.setattr(plan_module, "SHARED_POSITIONS", T + 1)
    assert plan_of(project, WEIGHTS, X).norm_calls == ((0,), (1,), (2,))


def test_methods_of_the_paper_do_not_share():
    assert plan_of(project, WEIGHTS, X, method="bk").norm_calls == ((0,), (1,), (2,))


def scanned(params, batch):
    def layer(h, w):
        return h + 0.1 * jnp.tanh(h @ w["q"]) * jnp.tanh(h @ w["k"]), jnp.sum(h @ w["v"])

    h, extra = lax.scan(layer, batch, params)
    return jnp.sum(h**2) + jnp.sum(jnp.sin(extra))


def plain(params, batch):
    return project(*(params[name][0] for name in "qkv"), batch[0])


LOSSES = {
    "plain": plain,
    "scan": scanned,
    "remat": jax.checkpoint(plain),
    "jit of scan": jax.jit(scanned),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("per_layer", [False, True])
def test_the_sum_is_exact(name, per_layer):
    rng = np.random.default_rng(0)
    draw = functools.partial(rng.normal, scale=0.5)
    params = {key: np.float32(draw(size=(3, D, D))) for key in "qkv"}
    batch = np.float32(draw(size=(6, T, D)))
    clip = {"q": 0.3, "k": 0.2, "v": 0.5} if per_layer else 0.7
    check_against_oracle(LOSSES[name], params, batch, l2_clip_norm=clip)
