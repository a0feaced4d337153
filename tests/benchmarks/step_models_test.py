"""The plain step of a benchmark's model is a fast one: a ratio to a slow one flatters."""

import operator
import sys

import jax
import numpy as np
import pytest
from support.structure import equations, fresh_jit

from benchmarks.steps import step_models

TEXT = {"batch": 2, "length": 5, "depth": 1, "d": 8, "words": 11}
IMAGES = {"batch": 2, "size": 32, "depth": 1, "d": 8}
TRANSFORMERS = {"gpt2": TEXT, "roberta": TEXT, "vit": IMAGES, "beit_large": IMAGES}


def in_double(tree):
    return jax.tree.map(lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, tree)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_gradients_of_weights_are_products_of_matrices(name):
    """A product over examples and tokens at once makes XLA:CPU write its operand transposed first."""
    task = step_models.make(name, abstract=True, **TRANSFORMERS[name])
    jaxpr = jax.make_jaxpr(jax.grad(task.loss))(task.params, task.batch)
    products = [eqn for eqn in equations(jaxpr) if eqn.primitive.name == "dot_general"]
    contracted = [len(eqn.params["dimension_numbers"][0][0]) for eqn in products]
    assert len(contracted) > 10
    assert set(contracted) == {1}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_rows_of_one_matrix_are_another_shape_and_no_other_number(name, monkeypatch, x64):
    task = step_models.make(name, **TRANSFORMERS[name])
    params, batch = in_double((task.params, task.batch))
    found = fresh_jit(jax.value_and_grad(task.loss))(params, batch)
    for module in ("beit", "parts", "transformers"):
        where = sys.modules[f"{step_models.__name__}.{module}"]
        monkeypatch.setattr(where, "matmul", operator.matmul)
    expected = fresh_jit(jax.value_and_grad(task.loss))(params, batch)
    for a, b in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)


def test_nothing_is_predicted_from_the_last_token():
    task = step_models.make("gpt2", **TEXT)
    rows = np.any(jax.jit(jax.grad(task.loss))(task.params, task.batch)["position"] != 0, axis=1)
    assert rows.nonzero()[0].tolist() == [0, 1, 2, 3]
