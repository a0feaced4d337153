"""Two parameters with one path: no table, pattern or checkpoint may take one for the other."""

import collections
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bk_jax
from bk_jax import audit, peft
from bk_jax.overhead.measure import tax
from bk_jax.paths import distinct, leaf_names, matching
from bk_jax.training.checkpoints import Checkpoints
from bk_jax.training.steps import State

ONES = np.ones(2, np.float32)
SQUARE = np.ones((2, 2), np.float32)
X = np.ones((3, 2), np.float32)


def chained(params, x):
    """Every matrix of the tree in turn, in the order of the leaves."""
    for leaf in jax.tree_util.tree_leaves(params):
        x = x @ leaf if leaf.ndim == 2 else x * leaf
    return jnp.sum(x)


@jax.tree_util.register_pytree_with_keys_class
class SameKeys:
    """A node of somebody's own that calls both of its children `w`."""

    def __init__(self, one, two):
        self.pair = (one, two)

    def tree_flatten_with_keys(self):
        key = jax.tree_util.GetAttrKey("w")
        return [(key, self.pair[0]), (key, self.pair[1])], None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


NAMES = {
    "a slash in a key": ({"a": {"b": 0}, "a/b": 1}, ["a/b", "'a/b'"]),
    "slashes in different keys": (
        {"a": {"b/c": 0}, "a/b": {"c": 1}}, ["a/'b/c'", "'a/b'/c"],
    ),
    "quotes do not help": (
        {"'a/b'": 0, "a": {"b": 1}, "a/b": 2}, ["'a/b'", "a/b", "'a/b' (2)"],
    ),
    "a number that is taken": (
        [SameKeys(0, 1), {"x": 3}], ["0/w", "0/w (2)", "1/x"],
    ),
    "an empty key": ({"a": {"": 0}, "a/": 1}, ["a/''", "'a/'"]),
    "keys with slashes that collide with nothing": (
        {"mlp/~/linear": {"b": 0, "w": 1}}, ["mlp/~/linear/b", "mlp/~/linear/w"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NAMES)
def test_no_two_leaves_have_one_name(case):
    tree, names = NAMES[case]
    assert leaf_names(tree) == names


def test_numbers_that_somebody_used_already():
    assert distinct(["w", "w (2)", "w", "w"]) == ["w", "w (2)", "w (3)", "w (4)"]


COLLIDING = {"a": {"b": SQUARE}, "a/b": ONES}


def test_explain_has_a_row_and_a_route_for_each():
    explanation = bk_jax.dp_value_and_grad(chained).explain(COLLIDING, X)
    assert explanation.routes() == {"a/b": "ghost", "'a/b'": "leaf"}
    assert {row.path: row.shape for row in explanation.rows} == {"a/b": (2, 2), "'a/b'": (2,)}


def test_a_forced_route_is_that_of_one_of_them():
    params = {"a": {"b": SQUARE}, "a/b": SQUARE}
    grad_fn = bk_jax.dp_value_and_grad(chained, routes={"a/b": "store", "'a/b'": "fused"})
    assert grad_fn.explain(params, X).routes() == {"a/b": "store", "'a/b'": "fused"}


def test_lora_has_an_adapter_for_each():
    params = {"a": {"b": SQUARE}, "a/b": SQUARE}
    lora = peft.lora(chained, params, X, rank=1, match="*")
    assert sorted(lora.adapters) == ["'a/b'", "a/b"]
    moved = jax.tree_util.tree_map(np.ones_like, lora.adapters)
    moved["a/b"]["a"] *= 2
    merged = lora.merge(params, moved)
    np.testing.assert_array_equal(merged["a"]["b"], 3 * SQUARE)
    np.testing.assert_array_equal(merged["a/b"], 2 * SQUARE)


def test_lora_tells_a_joined_weight_from_one_with_a_plus_in_its_name():
    def loss_fn(params, x):
        joined = jnp.concatenate([params["a"], params["b"]], axis=1)
        return jnp.sum(x @ joined) + jnp.sum(x @ params["a+b"])

    params = {"a": SQUARE, "a+b": SQUARE, "b": SQUARE}
    lora = peft.lora(loss_fn, params, X, rank=1, match="*")
    assert len(lora.adapters) == 2
    assert lora.merge(params, lora.adapters).keys() == params.keys()


def test_lora_gives_a_reason_for_each_that_it_leaves_out():
    params = {"a": {"b": ONES}, "a/b": ONES, "c": SQUARE}
    lora = peft.lora(chained, params, X, rank=1, match="*", skip=True)
    assert sorted(lora.skipped) == ["'a/b'", "a/b"]


def test_the_tax_has_a_row_for_each():
    report = tax(chained, COLLIDING, X, rounds=1, budget=0.01, profile=False)
    rows = collections.Counter(row.name for row in report.rows if row.kind == "parameter")
    assert rows == {"a/b": 1, "'a/b'": 1}


def test_an_audit_names_each():
    subject = audit.subject.Subject(chained, COLLIDING, X, {}, True)
    assert subject.paths() == ["a/b", "'a/b'"]


def test_batch_arrays_that_disagree_are_both_named():
    batch = {"a": {"b": X}, "a/b": X[:2]}
    with pytest.raises(ValueError, match="disagree on the number of examples: a/b: 3, 'a/b': 2"):
        bk_jax.clipped_value_and_grad(lambda w, x: jnp.sum(w))(ONES, batch)


# --- patterns ---


def test_a_pattern_that_is_a_path_matches_it():
    """Brackets mean something else in patterns, and some paths have them."""
    assert matching("kernel[0]", ["kernel[0]", "kernel0"]) == [0, 1]
    grad_fn = bk_jax.dp_value_and_grad(chained, routes={"kernel[0]": "store"})
    assert grad_fn.explain({"kernel[0]": SQUARE}, X).routes() == {"kernel[0]": "store"}
    trainable, _ = peft.partition({"kernel[0]": SQUARE, "kernel": ONES}, "kernel[0]")
    assert trainable["kernel"] is None
    assert trainable["kernel[0]"] is SQUARE


# --- checkpoints ---


def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints")


def test_a_checkpoint_that_would_mix_two_up_is_not_written(tmp_path):
    """Orbax joins keys by dots: it would give `a.b` the values of `a`'s `b`."""
    state = State({"a": {"b": jnp.zeros(2)}, "a.b": jnp.ones(2)}, ())
    told = "two arrays of the parameters or of the optimizer are 'params.a.b' to orbax"
    with pytest.raises(ValueError, match=told):
        checkpoints(tmp_path).restore(state)
    with pytest.raises(ValueError, match=told):
        checkpoints(tmp_path).save(state, {"steps": 1})


def test_a_checkpoint_keeps_slashes_apart(tmp_path):
    saved = checkpoints(tmp_path)
    saved.save(State({"a": {"b": jnp.zeros(2)}, "a/b": jnp.ones(2)}, ()), {"steps": 1})
    other = State({"a": {"b": jnp.zeros(3)}, "a/b": jnp.ones(2)}, ())
    with pytest.raises(ValueError, match=r"at params/a/b it has float32\[2\], but the arguments"):
        saved.restore(other)
