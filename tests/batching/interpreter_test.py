"""The table of rules, and the equations that go through JAX's own batching."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from batching.same import ABSENT, EXTRA, B, Given, Place, Result, batched, placed, same
from bk_jax import _compat
from bk_jax.program.batching import (
    Batching,
    Value,
    devices,
    elementwise,
    indexing,
    interpreter,
    products,
    reductions,
    scopes,
    shapes,
)

TABLES = (shapes, reductions, products, indexing, devices)
NAMES = [*elementwise.NAMES, *(name for module in TABLES for name in module.RULES)]
NEW = {"mulhi", "stack", "unstack"}  # in JAX 0.10.2


@pytest.mark.parametrize("name", NAMES)
def test_every_rule_is_that_of_a_primitive(name):
    """Else it would vanish without a word."""
    found = _compat.primitive(name)
    assert found in interpreter.RULES or (name in NEW and _compat.stack_p is None)


def test_no_primitive_has_two_rules():
    assert len(NAMES) == len(set(NAMES))
    assert not set(interpreter.RULES) & set(scopes.SCOPES)


def flipped(x):
    return lax.rev(x, (0,)) + 1


def test_what_has_no_rule_is_named_with_its_line():
    run, batching, _ = batched(flipped, [EXTRA], B)
    jax.make_jaxpr(run)(np.zeros((B, 3), np.float32))
    (fallback,) = batching.fallbacks
    assert fallback.primitive == "rev"
    line = inspect.getsourcelines(flipped)[1] + 1
    assert f"interpreter_test.py:{line}" in fallback.source


def test_a_primitive_that_nobody_knows():
    """The result is in place again where an axis of size 1 is beside the examples."""
    function = lambda x: 2 * lax.linalg.cholesky(x)  # noqa: E731
    run, batching, found = batched(function, [Place(0)], B)
    identities = np.broadcast_to(np.eye(3, dtype=np.float32), (B, 1, 3, 3))
    (out,) = jax.jit(run)(placed(identities, Place(0)))
    assert [fallback.primitive for fallback in batching.fallbacks] == ["cholesky"]
    assert found == [Place(0)]
    np.testing.assert_array_equal(out, 2 * identities[:, 0])


def test_what_all_examples_share_is_computed_once():
    """Not a batch axis is on it, and no rule is asked."""
    function = lambda x, w: (jnp.flip(w) @ w, x)  # noqa: E731
    result = same(function, Given((1, 3), Place(0)), Given((3, 3)))
    assert result == Result([ABSENT, Place(0)])


def test_results_that_are_arguments_numbers_and_constants():
    table = np.arange(3, dtype=np.float32)
    function = lambda x, w: (w, x, jnp.float32(2), jnp.asarray(table), x + table)  # noqa: E731
    result = same(function, Given((1, 3), Place(0)), Given((2,)))
    assert result == Result([ABSENT, Place(0), ABSENT, ABSENT, Place(0)])


def test_a_whole_program_by_vmap():
    """On a mesh with explicit axes, whose types say how arrays are cut."""
    jaxpr = jax.make_jaxpr(lambda x, w: (x @ w, w))(np.zeros((1, 3)), np.zeros((3, 2)))
    batching = Batching(B)
    x, w = np.arange(3 * B, dtype=np.float32).reshape(B, 3), np.ones((3, 2), np.float32)
    product, shared = batching.by_vmap(jaxpr, [Value(x, Place(0)), Value(w)])
    assert (product.place, shared.place) == (EXTRA, EXTRA)
    np.testing.assert_array_equal(product.array[:, 0], x @ w)
    np.testing.assert_array_equal(shared.array, np.broadcast_to(w, (B, 3, 2)))
    assert [fallback.primitive for fallback in batching.fallbacks] == ["all"]
