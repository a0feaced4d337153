"""Where arrays are: constraints on shardings, and what is communicated inside of a `shard_map`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec, SingleDeviceSharding
from transform.steps import equations

from batching.same import EXTRA, B, Given, Place, Result, batched, placed, same
from bk_jax._compat import primitive

P = PartitionSpec


def mesh():
    return jax.make_mesh((1, 1), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


# One example's shape and place, what the loss says, what is said of all examples.
CONSTRAINTS = {
    "the batch": ((1, 3), Place(0), P("data"), P("data", None)),
    "the batch in the middle": ((2, 1), Place(1), P(None, "data"), P(None, "data")),
    "features": ((1, 3), Place(0), P(None, "model"), P(None, "model")),
    "both": ((1, 3), Place(0), P("data", "model"), P("data", "model")),
    "two axes on one": ((1, 3), Place(0), P(("data", "model")), P(("data", "model"), None)),
    "examples beside": ((3, 2), EXTRA, P("model"), P(None, "model", None)),
    "another axis of size 1": ((1, 3, 1), Place(2), P("data"), P(None, None, "data")),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_what_is_said_of_the_batch_is_meant_for_all_examples(name):
    shape, place, said, meant = CONSTRAINTS[name]
    sharding = NamedSharding(mesh(), said)
    function = lambda x: lax.with_sharding_constraint(x, sharding)  # noqa: E731
    given = Given(shape, place)
    assert same(function, given) == Result([place])
    run, _, _ = batched(function, [place], B)
    (eqn,) = jax.make_jaxpr(run)(placed(given.array(0, B), place)).eqns
    assert eqn.params["sharding"].spec == meant


def test_a_constraint_that_says_nothing_of_axes_is_left_to_jax():
    device = SingleDeviceSharding(jax.devices()[0])
    function = lambda x: lax.with_sharding_constraint(x, device)  # noqa: E731
    assert same(function, Given((1, 3), Place(0))).fallbacks == ("sharding_constraint",)


def test_barriers_and_what_passes_them():
    function = lambda x, y: lax.optimization_barrier((x, 2 * y))  # noqa: E731
    given = [Given((1, 3), Place(0)), Given((3, 1), Place(1))]
    assert same(function, *given) == Result([Place(0), Place(1)])


@pytest.mark.parametrize("checked", [True, False])
def test_sums_over_devices(checked):
    """The examples of a device are added to their likes of the others."""
    mapped = jax.sharding.Mesh(np.asarray(jax.devices()[:1]), ("data",))
    run, batching, found = batched(lambda x: lax.psum(jnp.sin(x), "data"), [Place(1)], B)
    sums = jax.shard_map(run, mesh=mapped, in_specs=P("data"), out_specs=P(), check_vma=checked)
    x = np.ones((2, B), np.float32)
    jaxpr = jax.make_jaxpr(sums)(x)
    assert (found, batching.fallbacks) == ([Place(1)], [])
    kinds = {eqn.primitive for eqn in equations(jaxpr)}
    assert primitive("psum_invariant" if checked else "psum") in kinds
    np.testing.assert_array_equal(jax.jit(sums)(x)[0], np.asarray(jnp.sin(x)))
