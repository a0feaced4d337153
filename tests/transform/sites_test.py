"""Sites: where parameters are found, through which scopes, and why some are opaque."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from bk_jax.program.sites import ScanAxis, find_sites
from transform.steps import count_up, only_site, sites_of

W, X = count_up(3, 3), count_up(2, 3)


def layer(w, x):
    return jnp.tanh(x @ w)


def scanned_const(w, x):
    return lax.scan(lambda h, _: (layer(w, h), None), x, None, length=4)[0]


def scanned_xs(w, x):
    return lax.scan(lambda h, row: (jnp.tanh(h * jnp.dot(row, row * 0 + 1)), None), x, w)[0]


SCOPES = {
    "plain": (layer, 1, ()),
    "jit": (jax.jit(layer), 2, ()),
    "jit in jit": (jax.jit(jax.jit(layer)), 3, ()),
    "remat": (jax.checkpoint(layer), 2, ()),
    "scan": (scanned_const, 2, (ScanAxis(4, stacked=False),)),
    "scan in remat in jit": (
        jax.jit(jax.checkpoint(scanned_const)), 4, (ScanAxis(4, stacked=False),)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCOPES)
def test_sites_are_found_inside(name):
    scope, depth, axes = SCOPES[name]
    site = only_site(lambda w, x: jnp.sum(scope(w, x)), [W], X)
    assert site.use.kind == "dense"
    assert site.axes == axes
    assert len(site.path) == depth


def test_stacked_layers_unstack():
    def loss(w, x):
        return jnp.sum(lax.scan(lambda h, wi: (layer(wi, h), None), x, w)[0])

    site = only_site(loss, [count_up(5, 3, 3)], X)
    assert site.axes == (ScanAxis(5, stacked=True),)
    assert site.views[0].shape == (3, 3)


def test_nested_scans_list_their_axes_outermost_first():
    def loss(w, x):
        def outer(h, wi):
            return lax.scan(lambda h, _: (layer(wi, h), None), h, None, length=4)[0], None

        return jnp.sum(lax.scan(outer, x, w)[0])

    site = only_site(loss, [count_up(5, 3, 3)], X)
    assert site.axes == (ScanAxis(5, stacked=True), ScanAxis(4, stacked=False))


def test_a_view_made_inside_a_scope_is_followed_out_of_it():
    site = only_site(lambda w, x: jnp.sum(x @ jax.jit(jnp.transpose)(w)), [W], X)
    assert site.views[0].steps == ()  # the transpose went into the use


def test_sites_come_in_program_order_with_their_source():
    def loss(w, v, x):
        h = x @ w
        return jnp.sum(h @ v)

    found = sites_of(loss, [W, W], X)
    assert [site.leaves for site in found.sites] == [(0,), (1,)]
    start = inspect.getsourcelines(loss)[1]
    for site, line in zip(found.sites, (start + 1, start + 2), strict=True):
        assert f"sites_test.py:{line}" in site.source
        assert "(test_sites_come_in_program_order" in site.source
        assert site.primitive == "dot_general"


OPAQUE = {
    "cumsum": lambda w, x: x @ jnp.cumsum(w, axis=0),
    "sort": lambda w, x: x @ jnp.sort(w, axis=0),
    "add": lambda w, x: x + w[:2],
    "mul": lambda w, x: x * w[:2],
    "cond": lambda w, x: lax.cond(x[0, 0] > 0, lambda: x @ w, lambda: x),
    "custom_jvp_call": lambda w, x: jax.nn.relu(w)[:2] * x,
    "scan": lambda w, x: lax.scan(lambda c, _: (jnp.tanh(c), None), w, None, length=2)[0][:2] * x,
}


@pytest.mark.parametrize("name", OPAQUE)
def test_opaque_reasons_name_the_primitive_and_the_line_of_the_user(name):
    found = sites_of(lambda w, x: jnp.sum(OPAQUE[name](w, x)), [W], X)
    reasons = found.opaque[0]
    assert name in {reason.primitive for reason in reasons}
    line = inspect.getsourcelines(OPAQUE[name])[1]
    assert all(f"sites_test.py:{line}" in reason.source for reason in reasons)
    assert str(reasons[0]) == f"{reasons[0].primitive} at {reasons[0].source}"


def test_the_loss_itself():
    found = sites_of(lambda w: w[0, 0], [W])
    assert str(found.opaque[0][0]) == "return at the loss itself"


# --- what the loss does not depend on ---


@pytest.mark.parametrize("scope", [lambda f: f, jax.jit, jax.checkpoint])
def test_a_use_in_aux_does_not_make_a_parameter_opaque(scope):
    def loss(w, x):
        value, metric = scope(lambda w, x: (jnp.sum(x @ w), jnp.cumsum(w)))(w, x)
        return value, metric

    assert only_site(loss, [W], X).use.kind == "dense"


def test_stop_gradient_ends_the_path():
    def loss(w, v, x):
        target = lax.stop_gradient(jnp.cumsum(lax.stop_gradient(v)))
        return jnp.sum(x @ w) + jnp.sum(jnp.sort(lax.stop_gradient(w))) + jnp.sum(target)

    found = sites_of(loss, [W, W], X)
    assert [site.leaves for site in found.sites] == [(0,)]
    assert not found.opaque


def test_an_unused_parameter_has_neither_sites_nor_reasons():
    found = sites_of(lambda w, v, x: jnp.sum(x @ w), [W, np.float32(1.0)], X)
    assert [site.leaves for site in found.sites] == [(0,)]
    assert not found.opaque


def test_every_use_of_an_opaque_parameter_is_listed():
    found = sites_of(lambda w, x: jnp.sum(x @ w) + jnp.sum(jnp.exp(w)) + jnp.max(w), [W], X)
    assert len(found.sites) == 1
    assert [reason.primitive for reason in found.opaque[0]] == ["exp", "reduce_max"]


def test_every_use_counts_what_no_gradient_comes_back_from():
    def loss(w, v, x):
        return jnp.sum(x), x @ w, x @ lax.stop_gradient(v)

    jaxpr = jax.make_jaxpr(loss)(W, W, X)
    found = find_sites(jaxpr, 2)
    assert (found.sites, found.opaque) == ((), {})
    found = find_sites(jaxpr, 2, every_use=True)
    assert [site.leaves for site in found.sites] == [(0,)]
    assert [reason.primitive for reason in found.opaque[1]] == ["stop_gradient"]
