"""The one module that touches JAX's unstable surface: every primitive that we match on occurs."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from bk_jax import _compat
from bk_jax.program import book, replay, sites, views
from bk_jax.program.rules import USE_RULES
from transform.steps import count_up, equations

prims = _compat.prims
W, IDS = count_up(3, 4), np.int32([1, 2])


def scanned(w):
    return lax.scan(lambda h, row: (h + row, None), jnp.zeros(4), w)[0]


# What a user writes, and the primitive that it must become for our rules to see it.
WRITTEN = {
    "stop_gradient": (lax.stop_gradient, "stop_gradient_p"),
    "transpose": (lambda w: w.T, "transpose_p"),
    "reshape": (lambda w: w.reshape(12), "reshape_p"),
    "column-major": (lambda w: jnp.reshape(w, 12, order="F"), "reshape_p"),
    "squeeze": (lambda w: jnp.squeeze(w[:1]), "squeeze_p"),
    "slice": (lambda w: w[:, 1:3], "slice_p"),
    "flip": (jnp.flip, "rev_p"),
    "cast": (lambda w: w.astype(jnp.bfloat16), "convert_element_type_p"),
    "new axis": (lambda w: w[:, None], "broadcast_in_dim_p"),
    "split": (lambda w: jnp.split(w, 2, axis=1), "split_p"),
    "unstack": (jnp.unstack, "unstack_p"),
    "copy": (jnp.copy, "copy_p"),
    "device_put": (jax.device_put, "device_put_p"),
    "barrier": (lax.optimization_barrier, "optimization_barrier_p"),
    "sharding": (
        lambda w: lax.with_sharding_constraint(
            w, jax.sharding.SingleDeviceSharding(jax.devices()[0])
        ),
        "sharding_constraint_p",
    ),
    "name": (lambda w: checkpoint_name(w, "w"), "name_p"),
    "concatenate": (lambda w: jnp.concatenate([w, w]), "concatenate_p"),
    "stack": (lambda w: jnp.stack([w, w]), "stack_p"),
    "product": (lambda w: w @ w.T, "dot_general_p"),
    "convolution": (
        lambda w: lax.conv_general_dilated(w[None], w[None], (1,), "SAME"),
        "conv_general_dilated_p",
    ),
    "take": (lambda w: jnp.take(w, IDS, axis=0), "gather_p"),
    "dynamic index": (lambda w: lax.dynamic_index_in_dim(w, IDS[0]), "dynamic_slice_p"),
    "jit": (jax.jit(jnp.sin), "jit_p"),
    "remat": (jax.checkpoint(jnp.sin), "remat_p"),
    "scan": (scanned, "scan_p"),
    "cond": (lambda w: lax.cond(w[0, 0] > 0, jnp.sin, jnp.cos, w), "cond_p"),
}


for name in ("stack", "unstack"):  # older JAX concatenates and slices instead
    if getattr(_compat, f"{name}_p") is None:
        del WRITTEN[name]


def primitive(name):
    return getattr(_compat, name, None) or getattr(prims, name)


@pytest.mark.parametrize("name", WRITTEN)
def test_what_users_write_becomes_the_primitive_that_we_match(name):
    fun, expected = WRITTEN[name]
    found = {eqn.primitive for eqn in equations(jax.make_jaxpr(fun)(W))}
    assert primitive(expected) in found


def test_every_primitive_that_we_match_on_is_visited():
    visited = {primitive(expected) for _, expected in WRITTEN.values()}
    matched = {*views.VIEW_RULES, *views.PASS_THROUGH, *USE_RULES, *sites._ENTER, *replay._ENTER}
    matched |= {*filter(None, views.JOINS), prims.stop_gradient_p, prims.cond_p}
    assert matched == visited


def test_what_is_entered_is_entered_twice():
    """Once to find sites and once to evaluate them."""
    assert set(sites._ENTER) == set(replay._ENTER)


@pytest.mark.parametrize("name", WRITTEN)
def test_equations_are_evaluated_as_they_stand(name):
    fun, _ = WRITTEN[name]
    if name == "stop_gradient":
        fun = lambda w: (lax.stop_gradient(w),)  # noqa: E731
    jaxpr = jax.make_jaxpr(fun)(W)
    outs, recorded = jax.jit(lambda w: book.evaluate(jaxpr, [w], {}, {}))(W)
    assert not recorded
    for out, expected in zip(outs, jax.tree.leaves(fun(W)), strict=True):
        np.testing.assert_array_equal(np.asarray(out, np.float32), np.asarray(expected, np.float32))


@pytest.mark.parametrize("custom", [jax.custom_jvp, jax.custom_vjp])
def test_custom_derivatives_survive_evaluation(custom):
    @custom
    def three_times(x):
        return 3 * x

    if custom is jax.custom_jvp:
        three_times.defjvp(lambda primals, tangents: (3 * primals[0], 7 * tangents[0]))
    else:
        three_times.defvjp(lambda x: (3 * x, None), lambda _, cotangent: (7 * cotangent,))
    jaxpr = jax.make_jaxpr(three_times)(2.0)
    gradient = jax.grad(lambda x: book.evaluate(jaxpr, [x], {}, {})[0][0])(2.0)
    assert gradient == 7.0


def test_closed_and_open_jaxprs():
    closed = jax.make_jaxpr(lambda x: x + W)(W)
    opened, consts = _compat.split_closed(closed)
    assert opened is closed.jaxpr
    assert len(consts) == len(opened.constvars)
    assert _compat.split_closed(opened) == (opened, ())


def test_literals():
    (eqn,) = jax.make_jaxpr(lambda x: x + 2.0)(1.0).eqns
    assert [_compat.is_literal(atom) for atom in eqn.invars] == [False, True]


def test_source_lines():
    def fun(x):
        return jnp.sin(x)

    (eqn,) = jax.make_jaxpr(fun)(1.0).eqns
    line = inspect.getsourcelines(fun)[1] + 1
    assert f"compat_test.py:{line}" in _compat.source_line(eqn)


def test_tracing_gives_shapes_of_outputs():
    jaxpr, shape = _compat.trace(lambda x: {"out": x[0]}, W)
    assert shape["out"].shape == (4,)
    assert len(jaxpr.jaxpr.outvars) == 1


def test_private_modules_of_jax_are_named_in_one_file():
    from pathlib import Path

    package = Path(_compat.__file__).parent
    users = [
        path.relative_to(package).as_posix()
        for path in sorted(package.rglob("*.py"))
        if "jax._src" in path.read_text() or "jax.extend" in path.read_text()
    ]
    assert users == ["_compat.py"]
