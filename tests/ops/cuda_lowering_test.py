"""Programs lowered for CUDA in a process that has no GPU: our calls are in them, as handlers want them.

Skipped where `bk_jax._cuda` was not built; `python tools/build_native.py --cuda --into python/bk_jax`.
"""

import importlib.util
import os
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models.transformers import gpt2_plain
from support.structure import fresh_jit

import bk_jax
from bk_jax import _native, mechanisms, ops
from bk_jax._diagnose import report

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("bk_jax._cuda") is None, reason="bk_jax._cuda was not built"
)


@pytest.fixture(autouse=True)
def cuda(monkeypatch):
    """The calls for CUDA, registered although there is no device."""
    monkeypatch.setenv("BK_JAX_CUDA", "1")
    _native.cuda_library.cache_clear()
    yield _native.cuda_library()
    _native.cuda_library.cache_clear()


def lowered(fun, *operands):
    return fresh_jit(fun).trace(*operands).lower(lowering_platforms=("cuda",)).as_text()


def calls(text, target):
    """The lines of the custom calls of a target."""
    return re.findall(rf"stablehlo\.custom_call @{target}\(.*", text)


WITHOUT_WORKSPACE = {
    "bk_banded_gaussian",
    "bk_chacha_bits",
    "bk_clip_factor",
    "bk_gaussian",
    "bk_gaussians",
    "bk_weighted_sum",
}
ALIASED = {
    "bk_banded_gaussian": 0,
    "bk_clipped_gemm_add": 3,
    "bk_clipped_scatter": 3,
    "bk_gaussian": 0,
}  # operand of result 0


def check_form(line):
    """Arrays are row-major, the workspace is the last result, sums and noise are written in place."""
    target = re.search(r"@(\w+)", line).group(1)
    layouts = re.findall(r"dense<\[([\d, ]+)\]> : tensor<\d+xindex>", line)
    for layout in (text.split(", ") for text in layouts):
        assert layout == sorted(layout, reverse=True), line
    assert line.rstrip().endswith("xui8>)") == (target not in WITHOUT_WORKSPACE), line
    aliases = re.findall(r"operand_index = (\d+)", line)
    results = line.rpartition("->")[2].count("tensor<")
    assert aliases == expected_aliases(target, results), line


def expected_aliases(target, results):
    """Operands of results; the arrays of `bk_gaussians` come after a key and a deviation."""
    if target == "bk_gaussians":
        return [str(2 + i) for i in range(results)]
    return [str(ALIASED[target])] if target in ALIASED else []


def test_the_module_loads_without_a_driver_and_says_what_is_missing(cuda):
    assert cuda.module is not None
    shared = set(_native.TARGETS) - set(_native.ON_CPUS_ALONE)
    assert set(cuda.targets) == shared | set(_native.ON_GPUS_ALONE)
    assert not cuda.problem or "no device" in report()


def test_the_size_of_a_workspace_comes_from_the_check_of_the_call(cuda):
    a, g, norm = ("float32", (2, 1, 3, 4)), ("float32", (2, 1, 3, 5)), ("float32", (2,))
    assert cuda.module.workspace_bytes("bk_ghost_norm", [a, g], [norm, norm], {}) > 0
    assert cuda.module.workspace_bytes("bk_weighted_sum", [norm, a], [a], {}) == 0
    wrong = ("float32", (2, 1, 7, 5))
    message = r"bk_ghost_norm: g: expected f32\[2,1,3,5\], got f32\[2,1,7,5\]"
    with pytest.raises(ValueError, match=message):
        cuda.module.workspace_bytes("bk_ghost_norm", [a, wrong], [norm, norm], {})


def test_without_a_device_nothing_is_registered(monkeypatch, cuda):
    monkeypatch.delenv("BK_JAX_CUDA")
    _native.cuda_library.cache_clear()
    if cuda.problem:
        assert _native.cuda_library().module is None
        assert "finds no device" in _native.cuda_library().problem


def test_ghost_norm_has_operands_layouts_and_a_workspace():
    a, g = jnp.ones((2, 1, 100, 8), jnp.bfloat16), jnp.ones((2, 1, 100, 16), jnp.bfloat16)
    (line,) = calls(lowered(ops.ghost_norm, a, g), "bk_ghost_norm")
    assert "(tensor<200x8xbf16>, tensor<200x16xbf16>)" in line
    # Of two examples: three pairs of tiles, lengths of rows in two tiles and in four segments, one tile
    # of the gradient, all in double; a flag; and a list of examples to be computed again.
    bytes_ = 2 * (3 + 2 + 4 + 1) * 8 + 2 * 4 + 3 * 4
    assert f"-> (tensor<2xf32>, tensor<2xf32>, tensor<{bytes_}xui8>)" in line
    assert "operand_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]>" in line


def test_clipped_gemm_adds_in_place():
    a, g = jnp.ones((2, 1, 3, 4)), jnp.ones((2, 1, 3, 5))
    text = lowered(ops.clipped_gemm, a, jnp.ones(2), g, jnp.ones((1, 4, 5)))
    (line,) = calls(text, "bk_clipped_gemm_add")
    assert "output_operand_alias<output_tuple_indices = [0], operand_index = 3" in line
    assert "-> (tensor<4x5xf32>, tensor<1xui8>)" in line


def test_layers_of_one_shape_are_one_call():
    """The workspace is larger than that of one layer; there is one for all."""
    a, g = jnp.ones((2, 1, 100, 8), jnp.bfloat16), jnp.ones((2, 1, 100, 16), jnp.bfloat16)
    layers = [(a, g), (2 * a, g), (a, 2 * g)]
    (line,) = calls(lowered(ops.ghost_norms, layers), "bk_ghost_norms")
    check_form(line)
    operands = ", ".join(["tensor<200x8xbf16>, tensor<200x16xbf16>"] * 3)
    assert f"({operands}) -> (tensor<2xf32>, tensor<2xf32>, tensor<" in line
    (one,) = calls(lowered(ops.ghost_norm, a, g), "bk_ghost_norm")
    assert workspace(line) > workspace(one)
    (line,) = calls(lowered(ops.clipped_gemms, jnp.ones(2), layers), "bk_clipped_gemms")
    check_form(line)
    assert f"(tensor<2xf32>, {operands}) -> (tensor<8x16xf32>, tensor<8x16xf32>" in line


def test_odd_rows_are_padded():
    a, g = jnp.ones((2, 1, 30, 8), jnp.bfloat16), jnp.ones((2, 1, 30, 1025), jnp.bfloat16)
    text = lowered(lambda a, g: (ops.ghost_norm(a, g), ops.clipped_gemm(a, jnp.ones(2), g)), a, g)
    (norm,), (total,) = (calls(text, f"bk_{name}") for name in ("ghost_norm", "clipped_gemm"))
    assert "(tensor<60x8xbf16>, tensor<60x1032xbf16>)" in norm
    assert "-> (tensor<8x1032xf32>, tensor<" in total


def test_large_products_have_a_workspace_for_the_library():
    """A copy of the smaller operand, 4 MiB for cublasLt; the same whether there is a library or not."""
    a, g = jnp.ones((2, 1, 3, 64)), jnp.ones((2, 1, 3, 32))
    (line,) = calls(lowered(ops.clipped_gemm, a, jnp.ones(2), g), "bk_clipped_gemm")
    assert workspace(line) >= 4 * 2**20 + 4 * 2 * 3 * 32
    (line,) = calls(lowered(ops.per_sample_grad, a, g), "bk_per_sample_grad")
    assert workspace(line) >= 4 * 2**20
    half = [x.astype(jnp.bfloat16) for x in (a, g)]
    (line,) = calls(lowered(ops.clipped_gemm, half[0], jnp.ones(2), half[1]), "bk_clipped_gemm")
    assert workspace(line) < 2**20


def workspace(line):
    """Bytes of the last result."""
    return int(re.search(r"tensor<(\d+)xui8>\)$", line.rstrip()).group(1))


@pytest.mark.parametrize(
    ("precision", "stored", "summed"),
    [(None, True, False), ("tensorfloat32", True, True), ("float32", False, False)],
)
def test_products_are_in_tf32_where_the_setting_of_jax_says_so(precision, stored, summed):
    a, g = jnp.ones((2, 1, 3, 64)), jnp.ones((2, 1, 3, 32))
    with jax.default_matmul_precision(precision):
        text = lowered(
            lambda a, g: (ops.per_sample_grad(a, g), ops.clipped_gemm(a, a[:, 0, 0, 0], g)), a, g
        )
    (line,) = calls(text, "bk_per_sample_grad")
    assert ("tf32 = 1 : i64" in line) == stored
    (line,) = calls(text, "bk_clipped_gemm")
    assert ("tf32 = 1 : i64" in line) == summed


def test_the_library_of_nvidias_package_is_looked_for(monkeypatch, tmp_path):
    for name in ("cu13", "cublas"):
        (tmp_path / "nvidia" / name / "lib").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    found = [os.path.relpath(folder, tmp_path) for folder in _native.cublas_folders()]
    assert {"nvidia/cu13/lib", "nvidia/cublas/lib"} <= set(found)


def test_diagnose_says_who_makes_products(cuda):
    assert cuda.note in report()
    assert "cublasLt makes products" in cuda.note or "install nvidia-cublas" in cuda.note


def test_clip_factor_has_its_attribute_and_no_workspace():
    def fun(x):
        return ops.clip_factor(x, 1.0, jnp.zeros(2, bool), clipping="automatic")

    (line,) = calls(lowered(fun, jnp.ones((3, 2))), "bk_clip_factor")
    assert 'clipping = "automatic"' in line
    assert line.rstrip().endswith("-> (tensor<2xf32>, tensor<2xf32>)")


def test_a_banded_inverse_is_one_call_for_each_parameter(cuda):
    """All draws in place: no loop over keys, and no array beside the one that gets the noise."""
    noise = mechanisms.BandedInverse.square_root(bands=4)
    grad_fn = bk_jax.dp_value_and_grad(lambda w, x: 0.0, noise_multiplier=1.0)
    private = mechanisms.correlated(grad_fn, noise, mechanisms.SingleParticipation(9))

    def release(sums, keys):
        return private.release(sums, private.init(sums), keys=keys, step=3)[0]

    keys = mechanisms.recent_keys(jax.random.key(0), 3, noise.keys_needed)
    text = lowered(release, {"w": jnp.ones((5, 7)), "b": jnp.ones(7)}, keys)
    lines = calls(text, "bk_banded_gaussian")
    assert len(lines) == 2
    for line in lines:
        check_form(line)
    assert "(tensor<5x7xf32>, tensor<4x8xui32>, tensor<4xf32>, tensor<2xi32>)" in text
    assert "bk_gaussian" not in text
    assert "stablehlo.while" not in text


def test_noise_of_small_arrays_is_one_call_in_place():
    xs, key = [jnp.ones((5, 7)), jnp.ones(3)], jnp.zeros(8, jnp.uint32)
    text = lowered(lambda xs: ops.gaussians(xs, key, 1.0, streams=(4, 9)), xs)
    (line,) = calls(text, "bk_gaussians")
    check_form(line)
    assert "(tensor<8xui32>, tensor<f32>, tensor<5x7xf32>, tensor<3xf32>) -> (" in line
    assert "streams = dense<[4, 9]> : tensor<2xi64>" in line or "array<i64: 4, 9>" in line
    assert not calls(text, "bk_gaussian")


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_a_step_of_gpt2_holds_our_calls_in_the_form_that_handlers_want(cuda, dtype):
    """The whole step lowers for CUDA; every call in it is one that has a handler there."""
    model = gpt2_plain()
    params = jax.tree.map(lambda x: jnp.asarray(x, dtype), model.args[0])
    grad_fn = bk_jax.dp_value_and_grad(model.loss, l2_clip_norm=1.0, noise_multiplier=1.0)

    def step(params, batch, key):
        return grad_fn(params, batch, key=key)

    text = lowered(step, params, jnp.asarray(model.args[1]), jax.random.key(0))
    lines = calls(text, r"bk_\w+")
    for line in lines:
        check_form(line)
    found = {re.search(r"@(\w+)", line).group(1) for line in lines}
    assert found <= set(cuda.targets)
    assert found >= {"bk_clip_factor", "bk_clipped_gemm", "bk_clipped_scatter", "bk_gaussians"}
    assert found & {"bk_ghost_norm", "bk_direct_norm", "bk_per_sample_grad"}


@pytest.mark.parametrize(("dtype", "has_patches"), [(jnp.bfloat16, True), (np.float32, False)])
def test_convolutions_of_16_bits_are_dense_layers_of_patches(cuda, dtype, has_patches):
    """In a plan for a GPU: rows of 3 x 3 x 256 elements for 14 x 14 pixels of a part of 32 examples."""

    def loss(params, x):
        for kernel in params:
            x = jnp.tanh(jax.lax.conv(x, kernel, (1, 1), "SAME"))
        return jnp.sum(x.astype(jnp.float32))

    grad_fn = bk_jax.clipped_value_and_grad(loss, device="A100", routes={"*": "ghost"})
    params = [jax.ShapeDtypeStruct((256, 256, 3, 3), dtype)] * 8
    text = lowered(grad_fn, params, jax.ShapeDtypeStruct((32, 256, 14, 14), dtype))
    lines = calls(text, r"bk_\w+")
    for line in lines:
        check_form(line)
    found = {re.search(r"@(\w+)", line).group(1) for line in lines}
    dense, gathered = {"bk_ghost_norm", "bk_clipped_gemm_add"}, {"bk_conv_norm", "bk_conv_sum"}
    assert found & (dense | gathered) == (dense if has_patches else gathered)
    rows = [int(n) for n in re.findall(r"tensor<(\d+)x2304xbf16>, tensor<\d+x256xbf16>", text)]
    assert bool(rows) == has_patches
    assert all(n % 196 == 0 and n < 32 * 196 for n in rows)  # whole examples, a part of the batch
