"""The custom calls as XLA sees them: lowering, errors of the handlers. Threads: concurrency_test.py."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.structure import custom_calls

from bk_jax import _native, ops
from bk_jax.ops.noisy_update import Leaf, Numbers
from bk_jax.ops.weighted_sum import NATIVE_ELEMENTS

KEY = np.arange(8, dtype=np.uint32)
NUMBERS = Numbers(stddev=1.0, scale=0.5, step=-0.5, decay=0.5)
IDS = np.zeros((2, 3), np.int32)
WINDOW = ops.Window((1, 2, 2))
ATTRIBUTES = {name: np.asarray(value, np.int64) for name, value in WINDOW.attributes().items()}
ATTRIBUTES["groups"] = np.int64(1)
CONV = [(2, 1, 1, 4, 4, 3), (2, 1, 1, 3, 3, 2)]
IMAGES, PIXELS = np.ones((2, 4, 4, 3), np.float32), np.ones((2, 3, 3, 2), np.float32)
OPERANDS = {
    "bk_ghost_norm": (ops.ghost_norm, [(2, 1, 3, 4), (2, 1, 3, 5)]),
    "bk_clip_factor": (lambda s: ops.clip_factor(s, 1.0, jnp.zeros(2, bool)), [(3, 2)]),
    "bk_clipped_gemm": (ops.clipped_gemm, [(2, 1, 3, 4), (2,), (2, 1, 3, 5)]),
    "bk_clipped_gemm_add": (ops.clipped_gemm, [(2, 1, 3, 4), (2,), (2, 1, 3, 5), (1, 4, 5)]),
    "bk_direct_norm": (ops.direct_norm, [(2, 1, 3, 4), (2, 1, 3, 5)]),
    "bk_per_sample_grad": (ops.per_sample_grad, [(2, 1, 3, 4), (2, 1, 3, 5)]),
    "bk_squared_norms": (ops.sum_of_squares, [(2, 3), (2, 5)]),
    "bk_weighted_sum": (ops.weighted_sum, [(2,), (2, NATIVE_ELEMENTS // 2)]),
    "bk_gaussian": (lambda x: ops.gaussian(x, KEY, 1.0), [(3, 4)]),
    "bk_gaussians": (lambda x, y: ops.gaussians([x, y], KEY, 1.0), [(3, 4), (5,)]),
    "bk_banded_gaussian": (
        lambda x: ops.banded_gaussian(x, np.stack([KEY, KEY + 1]), [1.0, -0.5]),
        [(3, 4)],
    ),
    "bk_after": (ops.after, [(2,), (3, 4)]),
    "bk_noisy_update": (
        lambda s, x, m: ops.noisy_update([Leaf(s, x, (m,))], KEY, NUMBERS, optimizer="momentum"),
        [(3, 4)] * 3,
    ),
    "bk_chacha_bits": (lambda x: ops.chacha_bits(KEY, 9, stream=0, domain=1) + x, [()]),
    "bk_embedding_norm": (lambda g: ops.embedding_norm(IDS, g), [(2, 3, 4)]),
    "bk_clipped_scatter": (lambda c, g: ops.clipped_scatter(IDS, c, g, 5), [(2,), (2, 3, 4)]),
    "bk_tied_cross": (
        lambda left, right, g: ops.tied_cross(left, right, IDS, g),
        [(2, 2, 5), (2, 2, 4), (2, 3, 4)],
    ),
    "bk_conv_norm": (lambda x, g: ops.conv_norm(x, g, WINDOW), CONV),
    "bk_conv_grad": (lambda x, g: ops.conv_grad(x, g, WINDOW), CONV),
    "bk_conv_sum": (lambda x, g, c: ops.conv_sum(x, c, g, WINDOW), [*CONV, (2,)]),
}


def call(target):
    fun, shapes = OPERANDS[target]
    return functools.partial(fun), [np.ones(shape, np.float32) for shape in shapes]


def test_every_target_is_tested():
    assert set(OPERANDS) == set(_native.TARGETS)


@pytest.mark.native
def test_every_target_is_registered():
    assert set(_native.library().targets) == set(_native.TARGETS)


@pytest.mark.native
@pytest.mark.parametrize("target", OPERANDS)
def test_compiled_program_holds_the_custom_call(target):
    fun, operands = call(target)
    hlo = jax.jit(fun).lower(*operands).compile().as_text()
    assert custom_calls(hlo) == [target]


@pytest.mark.parametrize("target", OPERANDS)
def test_the_twin_holds_no_custom_call(target, monkeypatch):
    monkeypatch.setattr(_native, "available", lambda target: False)
    fun, operands = call(target)
    hlo = jax.jit(fun).lower(*operands).compile().as_text()
    assert custom_calls(hlo) == []


@pytest.mark.parametrize("target", OPERANDS)
@pytest.mark.parametrize("platforms", [("cuda",), ("tpu",), ("cpu", "cuda")])
def test_lowering_for_other_platforms(implementation, target, platforms):
    fun, operands = call(target)
    text = jax.jit(fun).trace(*operands).lower(lowering_platforms=platforms).as_text()
    assert "func.func public @main" in text
    on_this_platform = "cpu" in platforms and implementation == "native"
    assert (target in text) == on_this_platform


@pytest.mark.native
def test_handlers_name_operation_and_operand():
    """The Python functions check first; a program that calls a target by itself is told too."""
    a, g = np.ones((2, 1, 3, 4), np.float32), np.ones((2, 1, 4, 5), np.float32)
    out = jax.ShapeDtypeStruct((2,), jnp.float32)
    cases = [
        ("bk_ghost_norm", [out, out], (a, g), {}, r"bk_ghost_norm: g: expected f32\[2,1,3,5\]"),
        ("bk_ghost_norm", [out, out], (a[0], g), {}, r"bk_ghost_norm: a: expected rank 2 or 4"),
        ("bk_ghost_norm", [out, out], (a.astype(int), a), {}, r"bk_ghost_norm: .*expected"),
        ("bk_direct_norm", [out, out], (a, g), {}, r"bk_direct_norm: g: expected f32\[2,1,3,5\]"),
        ("bk_per_sample_grad", [out, out, out], (a, a), {},
         r"bk_per_sample_grad: grad: expected f32\[2,1,4,4\], got f32\[2\]"),
        ("bk_weighted_sum", [out], (a[:, 0, 0, 0], a[0, 0]), {},
         r"bk_weighted_sum: factor: expected f32\[3\], got f32\[2\]"),
        ("bk_clip_factor", [out, out], (a[:, 0, :2, 0].T, a[0, 0, 0, 0], np.zeros(2, bool)),
         {"clipping": "flat"}, r"bk_clip_factor: clipping: expected abadi, .*got 'flat'"),
        ("bk_clip_factor", [out, out], (a[:, 0, :2, 0].T, a[0, 0, 0, 0], np.zeros(3, bool)),
         {"clipping": "abadi"}, r"bk_clip_factor: is_padding: expected pred\[2\], got pred\[3\]"),
        ("bk_clipped_gemm", [jax.ShapeDtypeStruct((1, 4, 4), jnp.float32)],
         (a, np.ones(3, np.float32), a), {}, r"bk_clipped_gemm: factor: expected f32\[2\]"),
        ("bk_gaussian", [out], (a[0, 0, :2, 0], KEY, a[0, 0, 0, 0], np.zeros(1, np.int32)),
         {}, r"bk_gaussian: stream: expected an integer attribute, got none"),
        ("bk_gaussian", [out], (a[0, 0, :2, 0], KEY, a[0, 0, 0, 0], np.zeros(1, np.int32)),
         {"stream": -1}, r"bk_gaussian: stream: expected 0 <= value < 2\^32, got -1"),
        ("bk_gaussian", [out], (a[0, 0, :2, 0], KEY, a[0, 0, 0, 0], np.full(1, 2, np.int32)),
         {"stream": 0, "whole": np.full(1, 3)}, r"bk_gaussian: start: expected a block .*got \(2\)"),
        ("bk_chacha_bits", [jax.ShapeDtypeStruct((2,), jnp.uint32)], (KEY[:4],),
         {"stream": 0, "domain": 0}, r"bk_chacha_bits: key: expected u32\[8\], got u32\[4\]"),
        ("bk_embedding_norm", [out, out], (IDS, g[:, 0]), {},
         r"bk_embedding_norm: ids: expected s32\[2,4\], got s32\[2,3\]"),
        ("bk_clipped_scatter", [jax.ShapeDtypeStruct((5, 4), jnp.float32)],
         (IDS, np.ones(2, np.float32), a[:, 0], np.ones((5, 3), np.float32)), {},
         r"bk_clipped_scatter: initial: expected f32\[5,4\], got f32\[5,3\]"),
        ("bk_tied_cross", [out, out], (a[0, 0], g[0, 0], IDS, a[:, 0]), {},
         r"bk_tied_cross: left: expected the same rows for 2 examples, got f32\[3,4\]"),
        ("bk_tied_cross", [out, out], (g[0, 0], g[0, 0], IDS, a[:, 0]), {},
         r"bk_tied_cross: right: expected f32\[4,4\], got f32\[4,5\]"),
        ("bk_conv_norm", [out, out], (IMAGES[:, :, 0, 0], IMAGES), ATTRIBUTES,
         r"bk_conv_norm: x: expected rank 3, 4 or 5, got f32\[2,4\]"),
        ("bk_conv_norm", [out, out], (IMAGES[:1], PIXELS[:1]), ATTRIBUTES,
         r"bk_conv_norm: x: expected the same images for 2 examples, got f32\[1,4,4,3\]"),
        ("bk_conv_norm", [out, out], (IMAGES, PIXELS[:1]), ATTRIBUTES,
         r"bk_conv_norm: g: expected f32\[2,3,3,2\], got f32\[1,3,3,2\]"),
        ("bk_conv_norm", [out, out], (IMAGES, PIXELS),
         {**ATTRIBUTES, "groups": np.int64(2)},
         r"bk_conv_norm: groups: expected a positive divisor of 3 and 2, got 2"),
        ("bk_conv_norm", [out, out], (IMAGES, PIXELS),
         {**ATTRIBUTES, "stride": np.int64([1, 0, 1])},
         r"bk_conv_norm: stride: expected integers from 1 to 2\^31, got 0"),
        ("bk_conv_sum", [jax.ShapeDtypeStruct((1, 2, 2, 3, 2), jnp.float32)],
         (IMAGES, np.ones(2, np.float32), PIXELS), ATTRIBUTES,
         r"bk_conv_sum: sum: expected f32\[2,2,3,2\], got f32\[1,2,2,3,2\]"),
    ]  # fmt: skip
    assert _native.library().module is not None
    for target, results, operands, attributes, message in cases:
        with pytest.raises(jax.errors.JaxRuntimeError, match=message):
            jax.block_until_ready(jax.ffi.ffi_call(target, results)(*operands, **attributes))


@pytest.mark.native
def test_a_call_is_one_equation_that_vmap_and_op_by_op_make_a_conditional():
    """The results are the same in all three, and those of the twin."""
    a, g = np.float32([[[[1, 2]]], [[[3, 4]]]]), np.float32([[[[3]]], [[[1]]]])
    expected = np.float32([45, 25])
    equations = [eqn.primitive.name for eqn in jax.make_jaxpr(ops.ghost_norm)(a, g).eqns]
    assert equations.count("ffi_call") == 1
    assert "cond" not in equations
    assert (ops.ghost_norm(a, g).estimate == expected).all()
    assert (jax.jit(ops.ghost_norm)(a, g).estimate == expected).all()
    for axes in [(0, 0), (None, 0)]:
        left = np.stack([a, a]) if axes[0] == 0 else a
        many = jax.vmap(ops.ghost_norm, axes)(left, np.stack([g, 2 * g]))
        assert (many.estimate == np.stack([expected, 4 * expected])).all()


@pytest.mark.native
def test_calls_that_differ_in_attributes_share_their_types(monkeypatch):
    from bk_jax import _custom_call

    def step(x):
        return [ops.gaussian(x, KEY, 1.0, stream=stream) for stream in range(9)]

    _custom_call._result_types.cache_clear()
    jax.make_jaxpr(step)(np.ones(3, np.float32))
    assert _custom_call._result_types.cache_info().misses == 1
