"""What is really compiled: the custom calls are there, per-example gradients of weights are not."""

from collections import Counter

import jax
import numpy as np
import pytest
from support.models import mlp, mlp_batch, mlp_loss
from support.structure import custom_calls, hlo_shapes, jaxpr_shapes, same_up_to_layout

import bk_jax

# No two products of these are equal, so a shape says what it belongs to.
BATCH, SIZES = 6, (11, 13, 5)
TOKENS = (2,)
WEIGHTS = ("w1", "w2")


@pytest.fixture(scope="module")
def program():
    params, batch = mlp(np.float32, SIZES), mlp_batch(BATCH, np.float32, SIZES, TOKENS)
    grad_fn = bk_jax.dp_value_and_grad(mlp_loss, return_stats=True)
    traced = jax.jit(grad_fn).trace(params, batch, key=jax.random.key(0))
    return params, traced


def instantiated(shapes, params):
    """Shapes that are `(batch, *weight.shape)` in some layout."""
    forbidden = [(BATCH, *params[name].shape) for name in WEIGHTS]
    return [s for s in shapes if any(same_up_to_layout(s, f) for f in forbidden)]


def test_the_jaxpr_holds_no_per_example_gradient_of_a_weight(program):
    params, traced = program
    shapes = jaxpr_shapes(traced.jaxpr)
    assert (BATCH, 13) in shapes  # that of a bias is there, so the search finds things
    assert not instantiated(shapes, params)


@pytest.mark.native
def test_the_compiled_program_holds_the_custom_calls_and_no_per_example_gradient(program):
    params, traced = program
    hlo = traced.lower().compile().as_text()
    ours = [name for name in custom_calls(hlo) if name.startswith("bk_")]
    calls = {"bk_ghost_norm": 2, "bk_clip_factor": 1, "bk_clipped_gemm": 2}
    calls |= {"bk_squared_norms": 1, "bk_weighted_sum": 1}  # of both biases
    assert Counter(ours) == {**calls, "bk_gaussians": 1}  # of all four
    shapes = hlo_shapes(hlo)
    assert {params[name].shape for name in params} <= shapes
    assert not instantiated(shapes, params)


@pytest.mark.native
def test_microbatches_are_added_where_the_sum_stands():
    """The gemm adds to the sum in its buffer: no gradient of a microbatch beside it, and no copy."""
    params, batch = mlp(np.float32, SIZES), mlp_batch(BATCH, np.float32, SIZES, TOKENS)
    grad_fn = bk_jax.clipped_value_and_grad(mlp_loss, microbatch_size=2)
    hlo = jax.jit(grad_fn).lower(params, batch).compile().as_text()
    calls = Counter(custom_calls(hlo))
    assert (calls["bk_clipped_gemm_add"], calls["bk_clipped_gemm"]) == (2, 0)
    gemms = [line for line in hlo.splitlines() if '"bk_clipped_gemm_add"' in line]
    assert all("output_to_operand_aliasing={{}: (3, {})}" in line for line in gemms)
    copied = [line for line in hlo.splitlines() if " copy(" in line]
    weights = [f"f32[{','.join(map(str, params[name].shape))}]" for name in WEIGHTS]
    assert not [line for line in copied if any(weight in line for weight in weights)]


def test_the_search_finds_per_example_gradients():
    """The method that instantiates everything is caught by the same check."""
    params, batch = mlp(np.float32, SIZES), mlp_batch(BATCH, np.float32, SIZES, TOKENS)
    grad_fn = bk_jax.clipped_value_and_grad(mlp_loss, method="opacus")
    lowered = jax.jit(grad_fn).lower(params, batch)
    assert instantiated(jaxpr_shapes(jax.make_jaxpr(grad_fn)(params, batch)), params)
    assert instantiated(hlo_shapes(lowered.compile().as_text()), params)


def test_names_of_the_model_reach_the_program():
    def loss(params, batch):
        with jax.named_scope("my_network"):
            return mlp_loss(params, batch)

    lowered = jax.jit(bk_jax.clipped_value_and_grad(loss)).lower(mlp(), mlp_batch(2))
    assert "my_network" in lowered.as_text(debug_info=True)


@pytest.mark.parametrize("platforms", [("cuda",), ("tpu",), ("cpu", "cuda")])
def test_lowering_for_other_platforms(platforms):
    grad_fn = bk_jax.dp_value_and_grad(mlp_loss)
    traced = jax.jit(grad_fn).trace(mlp(), mlp_batch(2), key=jax.random.key(0))
    assert "func.func public @main" in traced.lower(lowering_platforms=platforms).as_text()
