"""Routes that the user forces, and the errors."""

import jax.numpy as jnp
import numpy as np
import pytest

from bk_jax.planning.methods import ROUTES
from bk_jax.planning.routes import ALLOWED
from transform.steps import count_up, plan_of

W, X = count_up(4, 4), count_up(2, 4)
IDS = np.int32([0, 1, 1])


def dense(w, x):
    return jnp.sum(x @ w)


def lookup(w, i):
    return jnp.sum(jnp.tanh(w[i]))


def tied(w, i):
    return jnp.sum(jnp.tanh(w[i]) @ w)


KINDS = {"dense": (dense, X), "lookup": (lookup, IDS), "tied": (tied, IDS)}


@pytest.mark.parametrize(("kind", "route"), [(k, r) for k in KINDS for r in ALLOWED[k]])
def test_every_route_can_be_asked_for(kind, route):
    loss, example = KINDS[kind]
    (block,) = plan_of(loss, [W], example, routes={"w0": route}).blocks
    assert (block.kind, block.route, block.why) == (kind, route, "asked for")


@pytest.mark.parametrize(
    ("kind", "route"),
    [(k, r) for k in KINDS for r in ROUTES if r not in ALLOWED[k] and r != "leaf"],
)
def test_a_route_that_the_use_does_not_have(kind, route):
    loss, example = KINDS[kind]
    message = (
        f"parameter 'w0' is used as {kind}, which has no route '{route}'; it can take .* or leaf"
    )
    with pytest.raises(ValueError, match=message):
        plan_of(loss, [W], example, routes={"w0": route})


def test_a_route_for_a_parameter_that_must_be_tapped():
    message = "parameter 'w0' cannot take the route 'ghost': it is used by cumsum at .*is \"leaf\""
    with pytest.raises(ValueError, match=message):
        plan_of(lambda w, x: jnp.sum(x @ jnp.cumsum(w, 0)), [W], X, routes={"w0": "ghost"})


def test_a_pattern_that_matches_nothing():
    with pytest.raises(ValueError, match=r"pattern '\*/kernel' matches no parameter; paths are w0"):
        plan_of(dense, [W], X, routes={"*/kernel": "ghost"})


def test_a_route_that_does_not_exist():
    with pytest.raises(ValueError, match="route 'gost' of pattern 'w0' is not one of ghost, fused"):
        plan_of(dense, [W], X, routes={"w0": "gost"})


def test_one_weight_can_not_take_two_routes():
    def joined(w, v, x):
        return jnp.sum(x @ jnp.concatenate([w, v], 1))

    with pytest.raises(ValueError, match=r"'w0', 'w1' are one weight but are asked to take \['fus"):
        plan_of(joined, [W, W], X, routes={"w0": "ghost", "w1": "fused"})


def test_the_last_pattern_wins():
    (block,) = plan_of(dense, [W], X, routes={"*": "store", "w0": "fused"}).blocks
    assert block.route == "fused"
