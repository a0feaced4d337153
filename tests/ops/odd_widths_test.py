"""Odd widths on a GPU: rows get zeros at their ends, once for all calls of a layer."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import fake_cuda
from support.structure import fresh_jit
from support.tolerance import eps

from bk_jax import _custom_call, ops
from bk_jax.ops import _border

ODD, EVEN = 1027, 1032
B, T, D = 2, 3, 16


@pytest.fixture
def module(monkeypatch):
    return fake_cuda.register(monkeypatch)


def operands(p=ODD, d=D, dtype=jnp.bfloat16):
    return fake_cuda.normal_arrays((B, 1, T, d), (B, 1, T, p), dtype=dtype)


def pads(text):
    return re.findall(r"stablehlo\.pad .* : \(tensor<(.*?)>.* -> tensor<(.*?)>", text)


def on_this_cpu(monkeypatch):
    """From here on the calls of CPUs are padded too."""
    monkeypatch.setattr(_custom_call.Form, "on", lambda form, platform: form.padded)


OPERATIONS = {
    "bk_ghost_norm": ops.ghost_norm,
    "bk_direct_norm": ops.direct_norm,
    "bk_per_sample_grad": ops.per_sample_grad,
    "bk_clipped_gemm": lambda a, g: ops.clipped_gemm(a, jnp.ones(B), g),
    "bk_ghost_norms": lambda a, g: ops.ghost_norms([(a, g), (-a, g)]),
    "bk_clipped_gemms": lambda a, g: ops.clipped_gemms(jnp.ones(B), [(a, g), (-a, g)]),
    "bk_tied_cross": lambda a, g: ops.tied_cross(
        g[:, 0], a[:, 0], jnp.zeros((B, 2), jnp.int32), a[:, 0, :2]
    ),
}


@pytest.mark.parametrize("target", OPERATIONS)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_calls_take_rows_of_whole_vectors(module, target, dtype):
    a, g = operands(dtype={"bf16": jnp.bfloat16, "f16": jnp.float16}[dtype])
    text = fake_cuda.lowered(OPERATIONS[target], a, g)
    (call,) = fake_cuda.calls(text, target)
    given, made = fake_cuda.shapes(call)
    assert f"6x{EVEN}x{dtype}" in given
    assert not [one for one in given + made if str(ODD) in one]
    assert set(pads(text)) == {(f"6x{ODD}x{dtype}", f"6x{EVEN}x{dtype}")}
    asked = next(given for name, given, _ in module.asked if name == target)
    assert (g.dtype.name, (6, EVEN)) in asked


@pytest.mark.parametrize(("d", "p"), [(ODD, D), (D, ODD), (ODD, ODD + 1)])
def test_results_are_cut_to_their_size(module, d, p):
    def sums(a, g):
        return ops.clipped_gemm(a, jnp.ones(B), g), *ops.per_sample_grad(a, g)

    assert jax.eval_shape(sums, *operands(p, d))[0].shape == (1, d, p)
    text = fake_cuda.lowered(sums, *operands(p, d))
    wide = [_border.padded_width(size, 2) for size in (d, p)]
    (total,), (each,) = (
        fake_cuda.calls(text, f"bk_{n}") for n in ("clipped_gemm", "per_sample_grad")
    )
    assert fake_cuda.shapes(total)[1] == ["{}x{}xf32".format(*wide)]
    assert fake_cuda.shapes(each)[1] == ["{}x1x{}x{}xf32".format(B, *wide), "2xf32", "2xf32"]
    assert f"tensor<{wide[0]}x{wide[1]}xf32>) -> tensor<{d}x{p}xf32>" in text


@pytest.mark.native
def test_norm_cross_term_and_sum_read_one_padded_array(module, monkeypatch):
    """Equal expressions of one value, of which XLA keeps one."""

    def layer(a, g):
        norms = ops.ghost_norm(a, g)
        rows = ops.tied_cross(g[:, 0], a[:, 0], jnp.zeros((B, 2), jnp.int32), a[:, 0, :2])
        return rows, ops.clipped_gemm(a, norms.upper, g)

    found = pads(fake_cuda.lowered(layer, *operands()))
    assert len(found) == 3
    assert {after for _, after in found} == {f"6x{EVEN}xbf16"}
    on_this_cpu(monkeypatch)
    compiled = fresh_jit(layer).lower(*operands()).compile().as_text()
    assert compiled.count(" pad(") == 1


NOT_PADDED = {
    "whole vectors": (operands(EVEN), {}),
    "float32": (operands(dtype=jnp.float32), {}),
    "short rows": (operands(1001), {}),
}


@pytest.mark.parametrize("case", NOT_PADDED)
@pytest.mark.parametrize("target", OPERATIONS)
def test_others_stay_as_they_are(module, case, target):
    text = fake_cuda.lowered(OPERATIONS[target], *NOT_PADDED[case][0])
    assert len(fake_cuda.calls(text, target)) == 1
    assert not pads(text)


def test_a_sum_that_is_added_in_place_stays_in_place(module):
    a, g = operands()
    start = jnp.zeros((1, D, ODD))
    text = fake_cuda.lowered(
        lambda *x: ops.clipped_gemm(x[0], jnp.ones(B), x[1], x[2]), a, g, start
    )
    (call,) = fake_cuda.calls(text, "bk_clipped_gemm_add")
    assert f"6x{ODD}xbf16" in fake_cuda.shapes(call)[0]
    assert not pads(text)


@pytest.mark.parametrize("target", OPERATIONS)
def test_the_program_of_a_cpu_has_no_padding(module, target):
    text = fake_cuda.lowered(OPERATIONS[target], *operands(), platform="cpu")
    assert not pads(text)
    assert str(EVEN) not in text


@pytest.mark.native
@pytest.mark.parametrize("target", [t for t in OPERATIONS if not t.endswith("s")])
def test_zeros_change_no_value(module, monkeypatch, target):
    """The padded call, run by the kernels of the CPU."""
    a, g = operands()
    expected = fresh_jit(OPERATIONS[target])(a, g)
    on_this_cpu(monkeypatch)
    padded = fake_cuda.lowered(OPERATIONS[target], a, g, platform="cpu")
    assert f"6x{EVEN}xbf16" in fake_cuda.shapes(fake_cuda.calls(padded, target)[0])[0]
    found = fresh_jit(OPERATIONS[target])(a, g)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert one.shape == other.shape
        scale = float(np.max(np.abs(np.asarray(other, np.float64)), initial=0.0))
        np.testing.assert_allclose(one, other, rtol=0, atol=64 * eps(np.float32) * scale)
