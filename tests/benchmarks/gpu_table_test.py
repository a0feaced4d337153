"""The table for GPUs compares steps of one precision, whatever JAX's default is."""

import re

import jax.numpy as jnp
import pytest

from benchmarks.gpu import paper_table
from benchmarks.steps import step_models


@pytest.mark.parametrize(
    ("precision", "printed"), [("float32", "HIGHEST"), ("tensorfloat32", "HIGH")]
)
@pytest.mark.parametrize("method", ["none", "opacus"])
def test_every_product_of_a_step_has_the_precision_that_is_asked_for(method, precision, printed):
    task = step_models.make("gpt2", batch=2, length=5, depth=1, d=8, words=11)
    numbers = paper_table.Numbers(jnp.dtype("float32"), precision)
    text = paper_table.lower(task, method, task.params, numbers).as_text()
    products = re.findall(r"stablehlo\.dot_general.*", text)
    assert len(products) > 10
    for line in products:
        assert f"precision = [{printed}, {printed}]" in line
