"""A table that people can read: their own lines, in a terminal of ordinary width."""

import inspect
import operator
import os
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import bk_jax
from bk_jax.sources import Frame, describe

HERE = os.path.relpath(__file__)
X = np.ones((3, 4), np.float32)


class Linen(linen.Module):
    """A layer of linen."""

    @linen.compact
    def __call__(self, x):
        return linen.Dense(5)(x)


class Nnx(nnx.Module):
    """A layer of nnx."""

    def __init__(self):
        self.dense = nnx.Linear(4, 5, rngs=nnx.Rngs(0))

    def __call__(self, x):
        return self.dense(x)


class Equinox(eqx.Module):
    """A layer of Equinox."""

    dense: eqx.nn.Linear

    def __call__(self, x):
        return self.dense(x[0])


def line_of(call):
    """The one line of a function that has something after its name."""
    lines, first = inspect.getsourcelines(call)
    return first + len(lines) - 1


def explain_linen():
    model = Linen()
    params = model.init(jax.random.key(0), X)
    return lambda params, x: jnp.sum(model.apply(params, x)), params


def explain_nnx():
    graph, params = nnx.split(Nnx())
    return lambda params, x: jnp.sum(nnx.merge(graph, params)(x)), params


def explain_equinox():
    return lambda model, x: jnp.sum(model(x)), Equinox(eqx.nn.Linear(4, 5, key=jax.random.key(0)))


LIBRARIES = {
    "flax/linen/linear.py": (explain_linen, Linen.__call__, "Linen.__call__"),
    "flax/nnx/nn/linear.py": (explain_nnx, Nnx.__call__, "Nnx.__call__"),
    "equinox/nn/_linear.py": (explain_equinox, Equinox.__call__, "Equinox.__call__"),
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_users_own_line_comes_first(library):
    make, call, name = LIBRARIES[library]
    loss_fn, params = make()
    rows = bk_jax.dp_value_and_grad(loss_fn).explain(params, X).rows
    (bias,) = [row for row in rows if row.path.endswith("bias")]
    (weight,) = [row for row in rows if not row.path.endswith("bias")]
    own = re.escape(f"{HERE}:{line_of(call)} ({name}) > {library}:")
    assert re.fullmatch(own + r"\d+", weight.uses[0])
    assert re.fullmatch("used by add at " + own + r"\d+", bias.why)


def test_a_line_of_ones_own_stands_alone():
    def loss_fn(w, x):
        return jnp.sum(x @ w)

    (row,) = bk_jax.dp_value_and_grad(loss_fn).explain(X.T, X).rows
    line = inspect.getsourcelines(loss_fn)[1] + 1
    name = "test_a_line_of_ones_own_stands_alone.<locals>.loss_fn"
    assert row.uses == (f"{HERE}:{line} ({name})",)


def test_who_calls_bk_jax_has_not_used_the_parameter():
    """A loss that a library wrote: the line that calls `explain` would be no answer."""
    loss_fn = operator.call  # loss_fn(model, x) is model(x), without a frame of its own
    model = eqx.nn.Linear(4, "scalar", key=jax.random.key(0))
    rows = bk_jax.dp_value_and_grad(loss_fn, keep_batch_dim=False).explain(model, X).rows
    (use,) = rows[0].uses
    assert re.fullmatch(r"equinox/nn/_linear\.py:\d+ \(Linear.__call__\)", use)


def test_frames_are_told_apart():
    library = Frame("/usr/lib/python3/site-packages/lib/nn.py", 7, "Dense")
    ours = Frame(bk_jax.__file__, 9, "wrapper")
    own = Frame("/somewhere/model.py", 3, "loss")
    notebook = Frame("<ipython-input-1>", 4, "<module>")
    standard = Frame(os.__file__, 5, "join")
    assert describe([]) == ""
    assert describe([own, ours]) == "/somewhere/model.py:3 (loss)"
    assert describe([library, standard, own]) == "/somewhere/model.py:3 (loss) > lib/nn.py:7"
    assert describe([library, notebook]) == "<ipython-input-1>:4 (<module>) > lib/nn.py:7"
    assert describe([library, ours, own]) == "lib/nn.py:7 (Dense)"
    assert describe([library]) == "lib/nn.py:7 (Dense)"


# --- the width ---


def wide_network():
    """Long names, long shapes, long reasons."""
    name = "a_transformer_with_a_long_name/encoder/block_11/self_attention"
    params = {f"{name}/query_{i}": np.ones((4, 1, 1, 1, 1, 1, 1, 1, 4), np.float32) for i in "ab"}
    params["scalar"] = np.float32(1)

    def a_loss_whose_own_name_is_long_as_well(params, x):
        for leaf in jax.tree_util.tree_leaves(params):
            x = x * leaf if leaf.ndim == 0 else jnp.tanh(x @ leaf.reshape(4, 4))
        return jnp.sum(x)

    return a_loss_whose_own_name_is_long_as_well, params


def explanation():
    loss_fn, params = wide_network()
    return bk_jax.dp_value_and_grad(loss_fn).explain(params, X)


def test_a_table_fits_in_120_columns():
    lines = str(explanation()).splitlines()
    assert max(map(len, lines)) <= 120
    header = "parameter shape kind route extra flop share ms why used at"
    assert lines[0].split() == header.split()
    assert any("query_b" in line and "explain_test.py:" in line for line in lines)
    assert "more columns, and every line in full: .table(wide=True)" in lines[-1]


def test_a_long_warning_is_wrapped():
    def loss_fn(params, x):
        return jnp.sum(x @ jnp.cumsum(params["a/name/" + 40 * "that/does/not/end/"], 0))

    params = {"a/name/" + 40 * "that/does/not/end/": jax.ShapeDtypeStruct((256, 256), jnp.float32)}
    x = jax.ShapeDtypeStruct((2, 256), jnp.float32)
    found = bk_jax.dp_value_and_grad(loss_fn).explain(params, x)
    assert len(found.warnings[0]) > 120
    assert max(map(len, str(found).splitlines())) <= 120
    assert f"warning: {found.warnings[0]}" in found.table(wide=True)


def test_the_rest_comes_on_request():
    found = explanation()
    text = found.table(wide=True)
    header = "parameter shape kind N T d p route extra flop share ms why used at"
    assert text.splitlines()[0].split() == header.split()
    for row in found.rows:
        assert row.path in text
        assert row.why in text
        assert all(use in text for use in row.uses)
    assert str(found) == found.table()


def test_short_tables_have_nothing_cut_off():
    (first, _, row, *_) = str(
        bk_jax.dp_value_and_grad(lambda w, x: jnp.sum(x @ w["w"])).explain({"w": X.T}, X)
    ).splitlines()
    assert "…" not in first + row
