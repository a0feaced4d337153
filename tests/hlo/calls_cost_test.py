"""Costs of our calls in compiled programs, against a count of their multiplications one by one."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bk_jax.hlo import find_calls, load
from bk_jax.hlo.calls_cost import call_flops
from bk_jax.hlo.model import Instruction, Shape
from bk_jax.ops import (
    Window,
    clip_factor,
    clipped_gemm,
    clipped_scatter,
    conv_grad,
    conv_norm,
    conv_sum,
    direct_norm,
    embedding_norm,
    ghost_norm,
    per_sample_grad,
    tied_cross,
)
from hlo import programs

B = 2
ONE = (1, 1, 1)
# images per example, size, kernel, stride, dilation, groups, input and output channels
CONVOLUTIONS = {
    "1-D": (1, (1, 1, 9), (1, 1, 3), ONE, ONE, 1, 4, 5),
    "2-D": (1, (1, 6, 5), (1, 3, 2), ONE, ONE, 1, 4, 5),
    "3-D": (1, (3, 4, 5), (2, 2, 2), ONE, ONE, 1, 2, 3),
    "grouped": (1, (1, 6, 6), (1, 3, 3), ONE, ONE, 2, 4, 6),
    "depthwise": (1, (1, 6, 6), (1, 3, 3), ONE, ONE, 4, 4, 4),
    "strided": (1, (1, 7, 9), (1, 3, 3), (1, 2, 2), ONE, 1, 4, 5),
    "strided more than its kernel": (1, (1, 7, 9), (1, 1, 2), (1, 3, 3), ONE, 1, 4, 5),
    "strided and dilated": (1, (1, 9, 9), (1, 3, 3), (1, 2, 2), (1, 2, 1), 1, 4, 5),
    "three images": (3, (1, 5, 5), (1, 2, 2), ONE, ONE, 1, 4, 5),
    "one pixel": (1, ONE, ONE, ONE, ONE, 1, 4, 5),
}


def conv_operands(case):
    """x, g, the window, and pixels, weights and kernel offsets of one example, listed one by one."""
    images, size, kernel, stride, dilation, groups, channels, outputs = case
    spans = zip(size, kernel, stride, dilation, strict=True)
    out = [(n - (k - 1) * far - 1) // step + 1 for n, k, step, far in spans]
    window = Window(kernel, stride, dilation=dilation, groups=groups)
    offsets = list(itertools.product(*map(range, kernel)))
    pixels = list(itertools.product(range(images), *map(range, out)))
    weights = list(itertools.product(offsets, range(channels // groups), range(outputs)))
    x, g = jnp.ones((B, images, *size, channels)), jnp.ones((B, images, *out, outputs))
    return x, g, window, pixels, weights


def only_call(function, *args):
    (module,) = load(jax.jit(function).lower(*args).compile())
    (call,) = [c for c in find_calls(module) if c.target != "bk_gaussian"]
    return call


@pytest.mark.native
@pytest.mark.parametrize("name", list(CONVOLUTIONS))
def test_convolutions(name):
    x, g, window, pixels, weights = conv_operands(CONVOLUTIONS[name])
    products = sum(1 for _ in itertools.product(range(B), pixels, weights))
    squares = B * len(weights)
    assert only_call(lambda x, g: conv_norm(x, g, window), x, g).flops == 2 * (products + squares)
    assert only_call(lambda x, g: conv_grad(x, g, window), x, g).flops == 2 * (products + squares)
    summed = only_call(lambda x, f, g: conv_sum(x, f, g, window), x, jnp.ones(B), g)
    assert summed.flops == 2 * products


@pytest.mark.native
@pytest.mark.parametrize("name", list(CONVOLUTIONS))
def test_gram_matrices_of_pixels(name):
    """Inner products of the pixels of each phase of the image that the kernel meets, and of g."""
    x, g, window, pixels, weights = conv_operands(CONVOLUTIONS[name])
    phases = {
        tuple(np.multiply(offset, window.dilation) % window.stride) for offset, _, _ in weights
    }
    pairs = sum(1 for i, j in itertools.product(range(len(pixels)), repeat=2) if i <= j)
    channels = len(phases) * x.shape[-1] + g.shape[-1]
    call = only_call(lambda x, g: conv_norm(x, g, window, "pixel_gram"), x, g)
    assert call.flops == 2 * B * pairs * channels


@pytest.mark.native
@pytest.mark.parametrize("n", [1, 3])
def test_dense_layers(n):
    t, d, p = 4, 5, 6
    a, g, factor = jnp.ones((B, n, t, d)), jnp.ones((B, n, t, p)), jnp.ones(B)
    products = sum(1 for _ in np.ndindex(B, n, t, d, p))
    squares = sum(1 for _ in np.ndindex(B, n, d, p))
    pairs = sum(1 for _, _, i, j in np.ndindex(B, n, t, t) if i <= j)
    assert only_call(ghost_norm, a, g).flops == 2 * pairs * (d + p)
    assert only_call(direct_norm, a, g).flops == 2 * (products + squares)
    assert only_call(per_sample_grad, a, g).flops == 2 * (products + squares)
    assert only_call(clipped_gemm, a, factor, g).flops == 2 * products
    assert only_call(clipped_gemm, a, factor, g, jnp.ones((n, d, p))).flops == 2 * products


@pytest.mark.native
def test_lookups_and_factors():
    t, s, p, rows = 4, 3, 6, 7
    ids, g, factor = jnp.zeros((B, s), jnp.int32), jnp.ones((B, s, p)), jnp.ones(B)
    assert only_call(embedding_norm, ids, g).flops == 2 * g.size
    scattered = only_call(lambda *args: clipped_scatter(*args, rows=rows), ids, factor, g)
    assert scattered.flops == 2 * g.size
    left, right = jnp.ones((B, t, rows)), jnp.ones((B, t, p))
    products = sum(1 for _ in np.ndindex(B, t, s, p)) + sum(1 for _ in np.ndindex(B, t, s))
    assert only_call(tied_cross, left, right, ids, g).flops == 2 * products
    norms = jnp.ones((3, B))
    padding = jnp.zeros(B, bool)
    assert only_call(clip_factor, norms, 1.0, padding).flops == 2 * norms.size


@pytest.mark.native
@pytest.mark.parametrize("name", list(CONVOLUTIONS))
def test_bytes_are_those_of_operands_and_results(name):
    x, g, window, _, weights = conv_operands(CONVOLUTIONS[name])
    call = only_call(lambda x, g: conv_grad(x, g, window), x, g)
    assert call.nbytes == 4 * (x.size + g.size + B * len(weights) + 2 * B)


@pytest.mark.native
@pytest.mark.parametrize("name", ["resnet", "threes"])
def test_convolutions_of_a_step_have_the_flops_of_its_plan(compiled, name):
    (module,) = load(compiled(name).program)
    step = programs.step(name)
    rows = {row.path: row for row in step.explanation.rows}
    norms = {c.layers[0]: c for c in find_calls(module) if c.target == "bk_conv_norm"}
    assert norms
    for path, call in norms.items():
        assert call.flops == rows[path].extra_flops[rows[path].route]


def made_call(target, results, config=""):
    shape = Shape("tuple", parts=tuple(Shape("f32", dims) for dims in results))
    return Instruction("c", "custom-call", shape, target=target, config=config)


def test_calls_for_many_layers_cost_as_much_as_a_call_for_each():
    """Two examples, three tokens, 4 to 5 features, seven layers."""
    pairs = [Shape("bf16", (6, 4)), Shape("bf16", (6, 5))] * 7
    norms = made_call("bk_ghost_norms", [(2,), (2,)])
    assert call_flops(norms, pairs) == 7 * 2 * 3 * 4 * (4 + 5)
    sums = made_call("bk_clipped_gemms", [(4, 5)] * 7)
    assert call_flops(sums, [Shape("f32", (2,)), *pairs]) == 7 * 2 * 6 * 4 * 5


def test_a_workspace_beside_the_results_is_not_taken_for_examples():
    """As on a GPU. Two examples, three tokens, 4 by 5 weights: products and squares."""
    a, g = Shape("bf16", (2, 1, 3, 4)), Shape("bf16", (2, 1, 3, 5))
    stored = made_call("bk_per_sample_grad", [(2, 1, 4, 5), (2,), (2,), (4096,)])
    direct = made_call("bk_direct_norm", [(2,), (2,), (4096,)])
    expected = 2 * 4 * 5 * (2 * 3 + 2)
    assert [call_flops(call, [a, g]) for call in (stored, direct)] == [expected] * 2


WINDOW = "{dilation = dense<1> : tensor<3xi64>, stride = dense<1> : tensor<3xi64>, %s}"


@pytest.mark.parametrize(
    "attributes",
    [
        "groups = 1 : i64, kernel = dense<1> : tensor<400000000x3xi64>",
        "groups = 0 : i64, kernel = dense<1> : tensor<3xi64>",
        f"groups = {'9' * 5000} : i64, kernel = dense<1> : tensor<3xi64>",
        f"groups = 1 : i64, kernel = dense<{1 << 31}> : tensor<3xi64>",
        "groups = 1 : i64, kernel = dense<[1, -3, 3]> : tensor<3xi64>",
        "groups = 1 : i64, kernel = dense<[1, 3]> : tensor<2xi64>",
        "groups = 1 : i64",
        "",
    ],
)
def test_attributes_that_make_no_sense_cost_nothing(attributes):
    x, g = Shape("f32", (2, 4, 4, 6)), Shape("f32", (2, 4, 4, 10))
    config = WINDOW % f'form = "direct", {attributes}'
    assert call_flops(made_call("bk_conv_norm", [(2,), (2,)], config), [x, g]) == 0


def test_operands_that_are_not_expected_cost_nothing():
    g = Shape("f32", (2, 5, 7))
    assert call_flops(made_call("bk_tied_cross", [(2,), (2,)]), []) == 0
    assert call_flops(made_call("bk_conv_norm", [(2,), (2,)]), [g, g, g]) == 0
    assert call_flops(made_call("bk_ghost_norm", [(0,), (0,)]), [g, g]) == 0
    assert call_flops(made_call("bk_ghost_norms", [(2,), (2,)]), []) == 0
    assert call_flops(made_call("bk_clipped_gemms", [(2,)]), [g]) == 0
    assert call_flops(made_call("bk_new", [(2,)]), [g]) == 0
