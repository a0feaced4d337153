"""Many layers in one call: the sum of what a call for each gives, in few calls for a GPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import fake_cuda
from support.arrays import double, normals, small_integers
from support.structure import fresh_jit
from support.tolerance import assert_bits_equal

from bk_jax import _native, ops
from bk_jax.ops.ghost_norms import MOST, even_parts


def layers(make, count, dtype=np.float32, weights=2):
    sizes = (3, weights, 4, 5), (3, weights, 4, 6)
    return [tuple(make(2 * n + i, sizes[i], dtype) for i in range(2)) for n in range(count)]


def truth(pairs):
    gradients = [np.einsum("bntd,bntp->bndp", double(a), double(g)) for a, g in pairs]
    return sum(np.square(each).sum((1, 2, 3)) for each in gradients)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_norms_of_small_integers_are_exact(implementation, dtype, count):
    pairs = layers(small_integers, count, dtype)
    norms = fresh_jit(ops.ghost_norms)(pairs)
    np.testing.assert_array_equal(norms.estimate, truth(pairs))
    assert np.all(norms.upper >= truth(pairs))
    assert np.all(np.asarray(norms.upper) <= 1.01 * truth(pairs) + 1e-2)


def test_bounds_are_above_the_truth_however_many_are_added():
    pairs = layers(normals, 70)
    norms = fresh_jit(ops.ghost_norms)(pairs)
    assert np.all(np.asarray(norms.upper, np.float64) >= truth(pairs))
    np.testing.assert_allclose(norms.estimate, truth(pairs), rtol=1e-5)


@pytest.mark.parametrize("weights", [1, 2])
def test_sums_have_the_bits_of_single_calls(implementation, dtype, weights):
    pairs = layers(normals, 3, dtype, weights)
    factor = np.asarray([0.5, 0.0, 2.0], jnp.promote_types(dtype, jnp.float32))
    together = fresh_jit(ops.clipped_gemms)(factor, pairs)
    alone = jax.jit(lambda f, pairs: [ops.clipped_gemm(a, f, g) for a, g in pairs])(factor, pairs)
    for many, one in zip(together, alone, strict=True):
        assert many.shape == (weights, 5, 6)
        assert_bits_equal(many, one)


def test_an_example_with_the_factor_0_is_not_read():
    pairs = [tuple(x.copy() for x in pair) for pair in layers(normals, 2)]
    pairs[1][0][1] = np.nan
    totals = ops.clipped_gemms(np.float32([1, 0, 1]), pairs)
    assert np.all(np.isfinite(totals[1]))
    norms = ops.ghost_norms(pairs)
    assert np.isfinite(norms.estimate).tolist() == [True, False, True]
    assert not np.isfinite(norms.upper[1])


def test_as_few_parts_as_possible_all_about_as_long():
    assert [len(part) for part in even_parts(range(36), 32)] == [18, 18]
    assert [len(part) for part in even_parts(range(32), 32)] == [32]
    assert [n for part in even_parts(range(9), 4) for n in part] == list(range(9))


@pytest.mark.parametrize(
    "fun", [ops.ghost_norms, lambda pairs: ops.clipped_gemms(jnp.ones(3), pairs)]
)
def test_layers_that_differ_are_refused(fun):
    one, other = layers(normals, 1)[0], (np.ones((3, 2, 4, 7), "f"), np.ones((3, 2, 4, 6), "f"))
    with pytest.raises(
        ValueError, match=r"same shapes and dtypes; got .*\[3, 2, 4, 5\].*\[3, 2, 4, 7\]"
    ):
        fun([one, other])
    with pytest.raises(ValueError, match="got none"):
        fun([])
    with pytest.raises(ValueError, match=r"expects operands \[B, N, T, M\].* equal B, N and T"):
        fun([(one[0], one[1][:, :1])] * 2)


def test_factors_of_another_batch_are_refused():
    with pytest.raises(ValueError, match=r"clipped_gemms expects factor \[3\], got \(2,\)"):
        ops.clipped_gemms(jnp.ones(2), layers(normals, 2))


# --- lowered for a GPU, by a stand-in for the module ---


@pytest.fixture
def module(monkeypatch):
    return fake_cuda.register(monkeypatch)


def both(pairs):
    norms = ops.ghost_norms(pairs)
    return norms, ops.clipped_gemms(norms.upper, pairs)


@pytest.mark.parametrize(
    ("weights", "a", "g", "out"),
    [(1, "12x5xbf16", "12x6xbf16", "5x6xf32"), (2, "3x2x4x5xbf16", "3x2x4x6xbf16", "2x5x6xf32")],
)
def test_one_call_has_the_operands_of_all(module, weights, a, g, out):
    text = fake_cuda.lowered(both, layers(normals, 5, jnp.bfloat16, weights))
    (norm,), (total,) = (fake_cuda.calls(text, f"bk_{n}") for n in ("ghost_norms", "clipped_gemms"))
    assert fake_cuda.shapes(norm) == ([a, g] * 5, ["3xf32"] * 2)
    assert fake_cuda.shapes(total) == (["3xf32", *[a, g] * 5], [out] * 5)
    assert fake_cuda.targets_of(text) == ["bk_ghost_norms", "bk_clipped_gemms"]
    asked = {target: (given, made) for target, given, made in module.asked}
    assert len(asked["bk_ghost_norms"][0]) == 10
    assert len(asked["bk_clipped_gemms"][1]) == 5


def test_more_than_a_call_takes_are_several(module):
    text = fake_cuda.lowered(both, layers(normals, MOST + 4))
    assert [len(fake_cuda.shapes(c)[0]) for c in fake_cuda.calls(text, "bk_ghost_norms")] == [
        36,
        36,
    ]
    assert [len(fake_cuda.shapes(c)[1]) for c in fake_cuda.calls(text, "bk_clipped_gemms")] == [
        18,
        18,
    ]


def test_one_layer_is_the_single_call(module):
    text = fake_cuda.lowered(both, layers(normals, 1))
    assert fake_cuda.targets_of(text) == ["bk_ghost_norm", "bk_clipped_gemm"]


@pytest.mark.native
def test_a_cpu_has_a_call_for_each_whatever_is_registered_for_gpus(module):
    pairs = layers(normals, 3)
    text = fake_cuda.lowered(both, pairs, platform="cpu")
    assert fake_cuda.targets_of(text) == ["bk_ghost_norm"] * 3 + ["bk_clipped_gemm"] * 3
    norms, _ = jax.jit(both)(pairs)
    np.testing.assert_allclose(norms.estimate, truth(pairs), rtol=1e-5)


def test_a_module_without_these_calls_has_one_for_each(monkeypatch):
    fake_cuda.register(monkeypatch, without=_native.ON_GPUS_ALONE)
    text = fake_cuda.lowered(both, layers(normals, 3))
    assert fake_cuda.targets_of(text) == ["bk_ghost_norm"] * 3 + ["bk_clipped_gemm"] * 3
