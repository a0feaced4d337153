"""`scan`: what is carried keeps its place from step to step, and may be batched late."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from batching.same import ABSENT, EXTRA, B, Given, Place, Result, batched, placed, same

X = Given((1, 3), Place(0))
STEPS = 4


def beside(axis):
    return Place(axis, extra=True)


def test_a_carry_of_each_example():
    function = lambda x, ws: lax.scan(lambda x, w: (x + x @ w, x), x, ws)  # noqa: E731
    given = [X, Given((STEPS, 3, 3), low=-1, high=2)]
    assert same(function, *given) == Result([Place(0), Place(1)])


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_carry_that_is_batched_after_some_steps(steps):
    """What enters the first becomes the second one step later, and so on."""

    def function(x, *shared):
        late = lambda carry, _: ((x - carry[0], *carry[:-1]), carry[-1])  # noqa: E731
        return lax.scan(late, shared, None, length=STEPS)

    shared = [Given((1, 3))] * steps
    assert same(function, X, *shared) == Result([*[Place(0)] * steps, Place(1)])


def test_a_carry_that_starts_as_a_number():
    """Sums of what is scanned over; the loop counts its steps besides."""

    def function(x):
        return lax.scan(lambda carry, row: ((carry[0] + row, carry[1] + 1), None), (0.0, 0), x[0])

    assert same(function, X) == Result([EXTRA, ABSENT])


def test_a_carry_that_a_step_would_put_elsewhere():
    function = lambda x: lax.scan(lambda x, _: (x.T - 1, x.T), x, None, STEPS)  # noqa: E731
    assert same(function, Given((1, 1), Place(1))) == Result([Place(1), Place(1)])


# What is scanned over, and where one step's result and all of them have their examples.
SLICES = {
    "in place": (Given((STEPS, 1, 3), Place(1)), Place(1)),
    "in place, last": (Given((STEPS, 3, 1), Place(2)), Place(2)),
    "beside, in front": (Given((STEPS, 3), EXTRA), beside(1)),
    "beside": (Given((STEPS, 3), beside(1)), beside(1)),
    "beside, last": (Given((STEPS, 3), beside(2)), beside(2)),
    "scalars": (Given((STEPS,), EXTRA), beside(1)),
}


@pytest.mark.parametrize("name", SLICES)
@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"unroll": 2}], ids=str)
def test_slices(name, options):
    xs, expected = SLICES[name]

    def function(xs, shared):
        body = lambda carry, x: (carry + 1, (2 * x - jnp.float32(1), carry * shared))  # noqa: E731
        return lax.scan(body, 0.0, xs, **options)

    assert same(function, xs, Given(())) == Result([ABSENT, expected, ABSENT])


@pytest.mark.parametrize("size", [0, 1, 2])
def test_no_steps(size):
    function = lambda x, xs: lax.scan(lambda x, y: (x + y, x * y), x, xs)  # noqa: E731
    given = [X, Given((0, 1, 3), Place(1))]
    assert same(function, *given, size=size) == Result([Place(0), Place(1)])


def test_a_loop_over_the_batch_itself_is_left_to_jax():
    """One step, for there is one example."""
    function = lambda x: lax.scan(lambda total, row: (total + row, 2 * row), 0 * x[0], x)  # noqa: E731
    assert same(function, X) == Result([EXTRA, Place(0)], ("scan",))


def test_loops_in_loops():
    """The inner one is batched by what the outer one carries, after a step."""

    def function(x, ws):
        def outer(carry, w):
            inner = lambda row, column: (row + column * carry[0, 0], row)  # noqa: E731
            last, rows = lax.scan(inner, w[0], w, reverse=True)
            return carry - last[None] * x, rows

        return lax.scan(outer, jnp.ones((1, 3)), ws)

    ws = Given((2, 2, 3), low=-1, high=2)
    assert same(function, X, ws) == Result([Place(0), beside(2)])


def test_constants_of_each_example():
    function = lambda x, ws: lax.scan(lambda total, w: (total + x @ w, None), 0 * x, ws)  # noqa: E731
    assert same(function, X, Given((STEPS, 3, 3))) == Result([Place(0)])


def test_gradients_of_loops():
    """Residuals of each step are stacked, the way back is a loop in reverse."""

    def function(x, ws):
        loop = lambda x: lax.scan(lambda x, w: (x * (x @ w), None), x, ws)[0]  # noqa: E731
        return jax.grad(lambda x: loop(x).sum())(x)

    given = [Given((1, 2), Place(0), low=-1, high=2), Given((3, 2, 2), low=-1, high=2)]
    assert same(function, *given) == Result([Place(0)])


def test_maps_and_counted_loops():
    def function(x):
        rows = lax.map(lambda element: element * 2, x[0])
        return lax.fori_loop(0, 3, lambda i, x: x.at[i].add(i), rows)

    same(function, X)


def test_each_equation_of_a_loop_without_a_rule_is_named_once():
    function = lambda x: lax.scan(lambda c, row: (c + row[::-1], None), jnp.zeros(3), x)  # noqa: E731
    result = same(function, Given((STEPS, 3), EXTRA))
    assert result == Result([EXTRA], ("rev",))


@pytest.mark.parametrize("leaks", [True, False])
@pytest.mark.parametrize("scope", ["scan", "cond"])
def test_equations_of_a_call_inside_are_named_too(leaks, scope):
    """With JAX's caches, and without them as in the other tests."""
    flip = jax.jit(lambda row: lax.rev(row, (0,)))

    def function(x):
        if scope == "scan":
            return lax.scan(lambda c, row: (c + flip(row), None), jnp.zeros(3), x)
        return lax.cond(x.shape[0] * jnp.ones(()) > 1, lambda x: flip(x[0]), lambda x: x[0], x)

    with jax.check_tracer_leaks(leaks):
        run, batching, _ = batched(function, [EXTRA], B)
        jax.make_jaxpr(run)(placed(np.zeros((B, STEPS, 3), np.float32), EXTRA))
    assert "rev" in {fallback.primitive for fallback in batching.fallbacks}
