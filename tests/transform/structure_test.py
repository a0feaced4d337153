"""What is traced and lowered: no per-example weight gradient on ghost routes, names, remat."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.structure import same_up_to_layout

import bk_jax
from bk_jax._compat import prims
from transform.steps import count_up, equations

BATCH = 6
# No two products of these and the batch are equal, so a shape says what it belongs to.
TOKENS, WIDTH, HIDDEN, LAYERS = 2, 11, 13, 7
X = np.zeros((BATCH, TOKENS, WIDTH), np.float32)


def dense(params, x):
    return jnp.sum(jnp.tanh(x @ params["w"]))


def shared(params, x):
    return jnp.sum(jnp.tanh(jnp.tanh(x @ params["w"]) @ params["w"].T))


def recurrent(params, x):
    step = lambda h, _: (jnp.tanh(h @ params["w"] @ params["w"].T), None)  # noqa: E731
    return jnp.sum(lax.scan(step, x, None, length=3)[0])


def stacked(params, x):
    step = lambda h, w: (jnp.tanh(h @ w @ w.T), None)  # noqa: E731
    return jnp.sum(lax.scan(jax.checkpoint(step), x, params["stack"])[0])


def convolution(params, x):
    out = lax.conv_general_dilated(x.reshape(1, TOKENS, WIDTH), params["k"], (1,), "SAME")
    return jnp.sum(jnp.tanh(out))


def lookup(params, x):
    ids = jnp.argmax(x, -1)
    return jnp.sum(jnp.tanh(params["w"][ids] @ params["w"].T))


def shapes_in(jaxpr):
    return {tuple(var.aval.shape) for eqn in equations(jaxpr) for var in eqn.outvars}


MODELS = {
    "dense": (dense, {"w": (WIDTH, HIDDEN)}),
    "shared": (shared, {"w": (WIDTH, HIDDEN)}),
    "recurrent": (recurrent, {"w": (WIDTH, HIDDEN)}),
    "stacked": (stacked, {"stack": (LAYERS, WIDTH, HIDDEN)}),
    "convolution": (convolution, {"k": (HIDDEN, TOKENS, 5)}),
    "tied": (lookup, {"w": (WIDTH, HIDDEN)}),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", ["bk", "ghost_clip"])
def test_ghost_routes_form_no_per_example_gradient(name, method):
    loss, shapes = MODELS[name]
    params = {k: count_up(*s) for k, s in shapes.items()}
    grad_fn = bk_jax.clipped_value_and_grad(loss, method=method)
    assert set(grad_fn.explain(params, X).routes().values()) == {"ghost"}
    found = shapes_in(jax.make_jaxpr(grad_fn)(params, X))
    (weight,) = shapes.values()
    assert any(same_up_to_layout(s, weight) for s in found)
    assert not [s for s in found if same_up_to_layout(s, (BATCH, *weight))]


@pytest.mark.parametrize("name", MODELS)
def test_the_search_finds_what_other_methods_form(name):
    loss, shapes = MODELS[name]
    params = {k: count_up(*s) for k, s in shapes.items()}
    grad_fn = bk_jax.clipped_value_and_grad(loss, method="opacus")
    found = shapes_in(jax.make_jaxpr(grad_fn)(params, X))
    (weight,) = shapes.values()
    assert [s for s in found if same_up_to_layout(s, (BATCH, *weight))]


def test_names_of_the_model_reach_the_compiled_program():
    def loss(params, x):
        with jax.named_scope("encoder"):
            with jax.named_scope("attention"):
                h = jnp.tanh(x @ params["w"])
            with jax.named_scope("mlp"):
                h = jax.jit(lambda h: jnp.sin(h @ params["v"]))(h)
        return jnp.sum(h)

    params = {"w": count_up(WIDTH, HIDDEN), "v": count_up(HIDDEN, WIDTH)}
    lowered = jax.jit(bk_jax.clipped_value_and_grad(loss)).lower(params, X)
    names = set(re.findall(r'op_name="([^"]*)"', lowered.compile().as_text()))
    for scope, operation in [("attention", "dot_general"), ("mlp", "dot_general"), ("mlp", "sin")]:
        assert any(re.search(rf"encoder.*{scope}.*{operation}", name) for name in names), scope


def rematerialised(jaxpr):
    return [eqn for eqn in equations(jaxpr) if eqn.primitive is prims.remat_p]


@pytest.mark.parametrize("method", ["auto", "bk", "opacus"])
def test_remat_survives_with_its_policy(method):
    policy = jax.checkpoint_policies.nothing_saveable

    def loss(w, x):
        layer = jax.checkpoint(lambda h: jnp.sin(jnp.sin(h @ w)), policy=policy, prevent_cse=False)
        return jnp.sum(layer(x))

    grad_fn = bk_jax.clipped_value_and_grad(loss, method=method)
    found = rematerialised(jax.make_jaxpr(grad_fn)(count_up(WIDTH, WIDTH), X))
    assert found
    assert all(eqn.params["policy"] is policy for eqn in found)
    assert not any(eqn.params["prevent_cse"] for eqn in found)


def test_remat_recomputes_what_it_did():
    """sin is evaluated again on the way back, as in the program without privacy."""

    def loss(w, x):
        layer = jax.checkpoint(lambda h: jnp.sin(jnp.sin(jnp.sin(h @ w))))
        return jnp.sum(layer(x))

    def sines(fun):
        jaxpr = jax.make_jaxpr(fun)(count_up(WIDTH, WIDTH), X)
        return sum(eqn.primitive is lax.sin_p for eqn in equations(jaxpr))

    private = sines(bk_jax.clipped_value_and_grad(loss, method="bk"))
    assert private == sines(jax.value_and_grad(loss)) > 3


def test_the_loss_is_traced_once():
    calls = []

    def loss(w, x):
        calls.append(None)
        return jnp.sum(jnp.tanh(x @ w))

    grad_fn = jax.jit(bk_jax.clipped_value_and_grad(loss))
    for _ in range(2):
        grad_fn(count_up(WIDTH, HIDDEN), X)
    assert len(calls) == 1
    assert grad_fn._cache_size() == 1
