"""Symbolic sizes of `jax.export`: routes and kernels are chosen by sizes, so these must be known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import bk_jax

W = {"kernel": np.ones((3, 4), np.float32)}


def loss_fn(w, batch):
    return jnp.sum(jnp.tanh(batch["x"] @ w["kernel"]))


def struct(sizes):
    return jax.ShapeDtypeStruct(export.symbolic_shape(sizes), np.float32)


CASES = {
    "batch": (W, {"x": struct("b, 5, 3")}, r"batch array 'x' has the shape \(b, 5, 3\)"),
    "tokens": (W, {"x": struct("8, t, 3")}, r"batch array 'x' has the shape \(8, t, 3\)"),
    "an expression": (W, {"x": struct("2*b, 3")}, r"batch array 'x' has the shape \(2\*b, 3\)"),
    "parameter": (
        {"kernel": struct("3, d")}, {"x": np.ones((8, 3), np.float32)},
        r"parameter 'kernel' has the shape \(3, d\)",
    ),
}  # fmt: skip
OPTIONS = [{}, {"microbatch_size": 2}, {"method": "tf_privacy"}, {"routes": {"*": "leaf"}}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_symbolic_sizes_are_refused(name, options):
    params, batch, text = CASES[name]
    grad_fn = bk_jax.clipped_value_and_grad(loss_fn, **options)
    with pytest.raises(ValueError, match=text) as info:
        export.export(jax.jit(grad_fn))(params, batch)
    assert "Export one program for each size" in str(info.value)
    assert "is_padding_example" in str(info.value)


def test_explain_refuses_as_well():
    with pytest.raises(ValueError, match="batch array 'x'"):
        bk_jax.clipped_value_and_grad(loss_fn).explain(W, CASES["batch"][1])


def test_the_way_out_is_one():
    """One size for all batches: what is not there is padding."""
    checks = [export.DisabledSafetyCheck.custom_call(c) for c in bk_jax.register_custom_calls()]
    grad_fn = jax.jit(bk_jax.clipped_value_and_grad(loss_fn))
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    padding = np.zeros(4, bool)
    program = export.export(grad_fn, disabled_checks=checks)(
        W, {"x": x}, is_padding_example=padding
    )
    padding[2:] = True
    _, grads = program.call(W, {"x": x}, is_padding_example=padding)
    np.testing.assert_allclose(grads["kernel"], grad_fn(W, {"x": x[:2]})[1]["kernel"], rtol=1e-6)
