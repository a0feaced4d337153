"""Programs inside programs: calls, rematerialised parts, choices, functions with their own rules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from transform.steps import equations

from batching.same import ABSENT, EXTRA, B, Given, Place, Result, batched, placed, same
from bk_jax._compat import prims

X = Given((1, 3), Place(0))
W = Given((3, 3))
SCALAR = Given((), EXTRA)


def program(function, *given):
    """The jaxpr of all examples, and its interpreter."""
    run, batching, _ = batched(function, [argument.place for argument in given], B)
    arrays = [placed(argument.array(0, B), argument.place) for argument in given]
    return jax.make_jaxpr(run)(*arrays), batching


@pytest.fixture
def caches():
    """JAX remembers traces, as it does for users: not while tracers are watched for leaks."""
    with jax.check_tracer_leaks(False):
        yield


def test_a_call_stays_a_call_by_its_name():
    @jax.jit
    def affine(x, w):
        return x @ w + 1, w

    assert same(affine, X, W) == Result([Place(0), ABSENT])
    jaxpr, _ = program(affine, X, W)
    assert [eqn.params.get("name") for eqn in jaxpr.eqns] == ["affine"]


def test_calls_in_calls():
    inner = jax.jit(lambda x, factor: factor * x.T)
    outer = jax.jit(lambda x, factor: inner(x, factor)[:, 0] + inner(x, 2.0).sum(0))
    for factor in (SCALAR, Given(())):
        assert same(outer, Given((2, 1), Place(1)), factor).fallbacks == ()


def test_a_call_that_a_derivative_rule_left_is_entered():
    """A loop inside of what is rematerialised leaves one."""

    def function(x, ws):
        loop = lambda x: lax.scan(lambda x, w: (x * (x @ w), None), x, ws)[0]  # noqa: E731
        return jax.grad(lambda x: jax.checkpoint(loop)(x).sum())(x)

    jaxpr = jax.make_jaxpr(function)(np.zeros((1, 2)), np.zeros((2, 2, 2)))
    assert prims.closed_call_p in {eqn.primitive for eqn in equations(jaxpr)}
    given = [Given((1, 2), Place(0), low=-1, high=2), Given((2, 2, 2), low=-1, high=2)]
    assert same(function, *given) == Result([Place(0)])


def test_calls_that_are_alike_are_traced_once(caches):
    """Kinds differ by where the examples are; what a call is like is known from its first trace."""

    @jax.jit
    def layer(x, w):
        return jnp.sin(x @ w)

    def function(x, y, w):
        once, again = layer(x, w), layer(layer(x, w), w)
        return once, again, layer(w, w), layer(y, w)

    jaxpr, batching = program(function, X, Given((1, 3), Place(0)), W)
    assert len(batching.calls) == 1
    bodies = [eqn.params["jaxpr"] for eqn in jaxpr.eqns]
    assert len(bodies) == 5
    assert len({id(body) for body in bodies}) == 2  # of all examples, and of none
    jaxpr, batching = program(function, X, Given((1, 3), EXTRA), W)
    assert len(batching.calls) == 2


def test_a_call_that_is_placed_on_devices_is_left_to_jax():
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    function = jax.jit(lambda x: 2 * x, out_shardings=sharding)
    assert same(function, X) == Result([Place(0)], ("jit",))


def test_rematerialised_parts_stay_what_they_are():
    policy = jax.checkpoint_policies.dots_saveable
    part = jax.checkpoint(lambda x, w: (x @ w, w, 2.0), policy=policy, prevent_cse=False)
    assert same(part, X, W) == Result([Place(0), ABSENT, ABSENT])
    jaxpr, _ = program(part, X, W)
    (eqn,) = (eqn for eqn in jaxpr.eqns if eqn.primitive is prims.remat_p)
    assert eqn.params["policy"] is policy
    assert not eqn.params["prevent_cse"]


def gradient_of_remat(x, w):
    part = jax.checkpoint(lambda x: jnp.sum(jnp.square(jnp.square(x @ w))))
    return jax.grad(part)(x)


def test_what_a_gradient_computes_again_is_kept_apart():
    """Else XLA would find that it was computed before."""
    assert same(gradient_of_remat, X, W) == Result([Place(0)])
    jaxpr, _ = program(gradient_of_remat, X, W)
    (eqn,) = (eqn for eqn in equations(jaxpr) if eqn.primitive is prims.remat_p)
    assert eqn.params["differentiated"]
    arrays = [placed(given.array(0, B), given.place) for given in (X, W)]
    run, _, _ = batched(gradient_of_remat, [X.place, W.place], B)
    assert "optimization_barrier" in jax.jit(run).lower(*arrays).as_text()


def test_a_rematerialised_part_that_closes_over_numbers():
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    part = jax.checkpoint(lambda x, factor: factor * (x @ table.T) + jnp.float32(3))
    assert same(lambda x: part(x, 2.0), X) == Result([Place(0)])


# A choice that all examples share: branches of one operand, where the result has its examples.
BRANCHES = {
    "alike": (lambda x: x + 1, lambda x: 2 * x, Place(0)),
    "one shares its result": (jnp.ones_like, lambda x: 2 * x, Place(0)),
    "both share it": (jnp.ones_like, jnp.zeros_like, ABSENT),
    "at different places": (lambda x: x * 2, lambda x: x.T, Place(1)),  # that of False is first
}


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("chosen", [0, 1])
def test_a_choice_for_all(name, chosen):
    one, other, expected = BRANCHES[name]
    which = Given((), low=chosen, high=chosen + 1)
    function = lambda which, x: lax.cond(which > 0, one, other, x)  # noqa: E731
    assert same(function, which, Given((1, 1), Place(0))) == Result([expected])


@pytest.mark.parametrize("chosen", [-1, 0, 1, 2, 3])
def test_a_choice_among_three(chosen):
    """One that is out of range is the first or the last; the operands are a number and an array."""
    which = Given((), dtype=np.int32, low=chosen, high=chosen + 1)
    branches = [lambda x, n: x + n, lambda x, n: x * x, lambda x, n: jnp.sort(x)]
    function = lambda which, x: lax.switch(which, branches, x, 2.0)  # noqa: E731
    assert same(function, which, X) == Result([Place(0)])


def test_a_choice_of_each_example_is_left_to_jax():
    function = lambda x: lax.cond(jnp.sum(x) > 0, lambda x: x, lambda x: -3 * x, x)  # noqa: E731
    assert same(function, X) == Result([Place(0)], ("cond",))


def doubled(x, steps):
    """Doubles until the sum is large or the steps are done."""
    go_on = lambda state: (state[0] < steps) & (jnp.abs(state[1]).sum() < 99)  # noqa: E731
    return lax.while_loop(go_on, lambda state: (state[0] + 1, 2 * state[1]), (0, x))


def test_loops_that_end_at_different_steps_are_left_to_jax():
    steps = Given((), dtype=np.int32, low=4, high=5)
    assert same(doubled, X, steps).fallbacks == ("while",)
    each = Given((), EXTRA, np.int32, 0, 4)
    assert same(doubled, X, each).fallbacks == ("while",)
    assert same(doubled, W, each).fallbacks == ("while",)


@jax.custom_jvp
def three_times(x):
    return 3 * x


three_times.defjvp(lambda primals, tangents: (3 * primals[0], 7 * tangents[0]))


@jax.custom_vjp
def five_times(x, w):
    return 5 * x + w


five_times.defvjp(lambda x, w: (5 * x + w, w), lambda w, g: (11 * g * w, g))


def test_functions_with_derivatives_of_their_own():
    function = lambda x, w: five_times(three_times(x), w)  # noqa: E731
    assert same(function, X, Given((1, 3))) == Result([Place(0)])
    jaxpr, _ = program(function, X, Given((1, 3)))
    left = {eqn.primitive for eqn in equations(jaxpr)}
    assert not left & {prims.custom_jvp_call_p, prims.custom_vjp_call_p}


def test_their_derivatives_are_those_that_they_say():
    def function(x, w):
        return jax.grad(lambda x: jnp.sum(five_times(three_times(x), w)))(x)

    assert same(function, X, X) == Result([Place(0)])
    run, _, _ = batched(function, [X.place, X.place], B)
    (out,) = jax.jit(run)(np.zeros((B, 3), np.float32), np.ones((B, 3), np.float32))
    np.testing.assert_array_equal(out, np.full((B, 3), 77))


def test_a_function_with_a_rule_for_batches_is_asked():
    @jax.custom_batching.custom_vmap
    def own(x):
        return x

    own.def_vmap(lambda size, batched, x: (x + size, True))
    assert same(own, X) == Result([Place(0)], ("custom_vmap_call",))
    run, _, _ = batched(own, [X.place], B)
    (out,) = jax.jit(run)(np.zeros((B, 3), np.float32))
    np.testing.assert_array_equal(out, np.full((B, 3), B))


# Functions with a `vmap` inside: operands of the equations broadcast axes of size 1.
MAPPED = {
    "rows with a vector": (jax.vmap(lambda row, w: row @ w, (0, None)), W),
    "a row with every vector": (jax.vmap(lambda x, w: x * w, (None, 0)), W),
    "scalars with rows": (jax.vmap(lambda x, w: x[:1] * w), Given((1, 3))),
    "columns": (jax.vmap(lambda x, w: jnp.maximum(x, w[:1]), (1, 0), 1), W),
    "an ensemble": (lambda x, w: jax.vmap(lambda w: jnp.abs(x @ w))(w), Given((2, 3, 3))),
    "pairs": (lambda x, w: jax.vmap(lambda a: jax.vmap(lambda b: a * b - 1)(w))(x[0]), W),
}


@pytest.mark.parametrize("name", MAPPED)
def test_functions_with_a_vmap_inside(name):
    function, w = MAPPED[name]
    assert same(function, X, w).fallbacks == ()


def test_random_numbers_of_each_example():
    def function(bits):
        key = jax.random.wrap_key_data(bits, impl="threefry2x32")
        one, two = jax.random.split(key)
        return jax.random.bits(one, (1, 4)), jax.random.randint(two, (3,), 0, 9)

    same(function, Given((2,), EXTRA, np.uint32, 0, 99))
