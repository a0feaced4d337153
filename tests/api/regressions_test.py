"""Bugs that were: one test each, so that none comes back."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.process import run_python

import bk_jax
from bk_jax.ops.ghost_norm import ghost_norm_twin


@pytest.mark.parametrize(("a", "g", "tokens"), [(1e-20, 1e19, 1), (3e-10, 3e-10, 100)])
def test_the_bound_of_the_twin_survives_underflow(a, g, tokens):
    """ghost_norm_twin: Gram entries or their products underflow to 0, and so does the bound.

    The native kernel has this right (tests/ops/ghost_norm_test.py). Truth 1e-2 in the first case.
    """
    a, g = (np.full((1, 1, tokens, 1), x, np.float32) for x in (a, g))
    upper = np.asarray(jax.jit(ghost_norm_twin)(a, g).upper)[0]
    truth = (tokens * Fraction(float(a.flat[0])) * Fraction(float(g.flat[0]))) ** 2
    assert Fraction(float(upper)) >= truth


@pytest.mark.parametrize("clipping", ["normalize", "automatic"])
def test_a_second_pass_in_float16_with_a_large_factor_is_finite(clipping):
    """clipped_sum._split_power: the power overflows in the loss's float16; auto gives 8e3."""
    grad_fn = bk_jax.clipped_value_and_grad(
        lambda w, x: jnp.sum(x @ w).astype(jnp.float16),
        method="ghost_clip",
        clipping=clipping,
        l2_clip_norm=1e4,
    )
    _, grad = jax.jit(grad_fn)(np.ones((3, 2), np.float32), np.full((1, 3), 1e-3, np.float32))
    assert np.all(np.isfinite(grad))
    assert np.linalg.norm(grad) <= 1e4


def test_a_library_that_xla_refuses_does_not_take_the_backend_with_it():
    """_native._register: before there is a backend, targets are queued and refused too late."""
    run_python("""
        import sys, types, warnings
        module = types.ModuleType("bk_jax._cpu")
        module.registrations = lambda: dict.fromkeys(
            ["bk_ghost_norm", "bk_clip_factor", "bk_clipped_gemm"], object())
        module.ffi_api_version = lambda: (9, 9)
        sys.modules["bk_jax._cpu"] = module
        import bk_jax, jax, numpy as np
        warnings.simplefilter("ignore")
        grad_fn = bk_jax.clipped_value_and_grad(lambda w, x: (x @ w).sum())
        jax.jit(grad_fn)(np.ones((3, 2), np.float32), np.ones((4, 3), np.float32))
    """)


def test_a_list_of_booleans_is_a_padding_mask():
    """validate.padding_mask: jnp.result_type of a list raises a message of JAX's own."""
    grad_fn = bk_jax.clipped_value_and_grad(lambda w, x: jnp.sum(x @ w))
    args = (np.ones((3, 2), np.float32), np.ones((2, 3), np.float32))
    with_list = jax.eval_shape(lambda: grad_fn(*args, is_padding_example=[False, True]))
    assert with_list[1].shape == (3, 2)


@pytest.mark.parametrize("options", [{"noise_multiplier": None}, {"l2_clip_norm": "1"}])
def test_numbers_that_are_none_get_a_message_of_ours(options):
    """validate.concrete: float(None) and float("x") speak of float(), not of the option."""
    name = next(iter(options))
    with pytest.raises((TypeError, ValueError), match=f"{name} must be"):
        bk_jax.dp_value_and_grad(lambda w, x: jnp.sum(x @ w), **options)


@jax.custom_vjp
def signs_of_gradients(x):
    return x


signs_of_gradients.defvjp(lambda x: (x, None), lambda _, ct: (jnp.sign(ct),))


@pytest.mark.parametrize("method", ["ghost_clip", "fast_grad_clip", "mix_ghost_clip"])
def test_a_backward_function_that_is_not_linear(method):
    """clipped_sum: sign(C g) is not C sign(g), so a second pass would add 4, not R = 1."""
    grad_fn = bk_jax.clipped_value_and_grad(
        lambda w, x: jnp.sum(signs_of_gradients(x @ w)), method=method, keep_batch_dim=False
    )
    _, grads = grad_fn(np.ones((16, 1), np.float32), np.ones((1, 16), np.float32))
    np.testing.assert_allclose(grads, np.full((16, 1), 0.25), rtol=1e-5)


@pytest.mark.parametrize("method", ["auto", "opacus"])
def test_a_nan_stays_in_its_example_through_convolutions_in_float64(x64, method):
    """XLA on a CPU multiplies the groups of a convolution by zeros, and examples were groups."""

    def loss(kernel, x):
        out = jax.lax.conv(x[:, None], jnp.sin(kernel), (1,), "SAME")
        return jnp.sum(jnp.sin(out))

    x = np.arange(15.0).reshape(3, 5)
    x[1] = np.nan
    grad_fn = bk_jax.clipped_value_and_grad(loss, method=method, return_stats=True)
    _, grads, stats = jax.jit(grad_fn)(np.ones((2, 1, 3)), x)
    assert np.isfinite(stats.norms).tolist() == [True, False, True]
    assert np.all(np.isfinite(grads))
