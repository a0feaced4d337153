"""Noise of many arrays: that of each, in one call."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.arrays import normals
from support.structure import custom_calls, fresh_jit
from support.tolerance import assert_bits_equal

import bk_jax
from bk_jax import ops
from bk_jax.ops.gaussians import TOGETHER

KEY = np.arange(8, dtype=np.uint32)
SIZES = (0, 1, 3, 16, 17, 255, 256, 257, 16383, 16384, 16385, 40_000)
SHAPES = [(size,) for size in SIZES] + [(), (3, 5, 7)]


@pytest.mark.parametrize("stddev", [0.0, 0.7])
def test_it_is_the_noise_of_each(implementation, stddev):
    xs = [normals(seed, shape, np.float32) for seed, shape in enumerate(SHAPES)]
    streams = [3 * i + 1 for i in range(len(xs))]
    found = fresh_jit(lambda xs: ops.gaussians(xs, KEY, stddev, streams=streams))(xs)
    for x, out, stream in zip(xs, found, streams, strict=True):
        alone = fresh_jit(lambda x, stream=stream: ops.gaussian(x, KEY, stddev, stream=stream))
        assert_bits_equal(out, alone(x))


@pytest.mark.native
def test_arrays_that_nobody_else_needs_are_overwritten():
    run = jax.jit(lambda xs: ops.gaussians(xs, KEY, 1.0), donate_argnums=0)
    xs = [np.zeros((50, 50), np.float32), np.zeros(700, np.float32)]
    memory = run.lower(xs).compile().memory_analysis()
    assert memory.alias_size_in_bytes == 4 * (2500 + 700)
    assert memory.temp_size_in_bytes < 2800


@pytest.mark.native
def test_a_gradient_has_one_call_for_its_small_leaves_and_one_for_each_large():
    shapes = {"a": (300, 300), "b": (300,), "c": (2, 2), "d": (TOGETHER,), "e": (TOGETHER + 1,)}
    params = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    grad_fn = bk_jax.dp_value_and_grad(lambda w, x: x * sum(jnp.sum(v) for v in w.values()))
    key = jax.random.key(0)
    hlo = jax.jit(grad_fn.release).lower(params, key).compile().as_text()
    noise = [name for name in custom_calls(hlo) if "gaussian" in name]
    assert sorted(noise) == ["bk_gaussian", "bk_gaussian", "bk_gaussians"]
    together, apart = jax.jit(grad_fn.release)(params, key), {}
    words = bk_jax.noise.noise_key(key)
    for stream, name in enumerate(params):
        apart[name] = ops.gaussian(jnp.asarray(params[name]), words, 1.0, stream=stream)
    jax.tree.map(assert_bits_equal, together, apart)


def test_errors():
    x = jnp.zeros(2)
    assert ops.gaussians([], KEY, 1.0) == []
    with pytest.raises(ValueError, match=r"one stream for each of 2 arrays, .*; got \(1, 1\)"):
        ops.gaussians([x, x], KEY, 1.0, streams=[1, 1])
    with pytest.raises(ValueError, match=r"one stream for each of 1 arrays"):
        ops.gaussians([x], KEY, 1.0, streams=[])
    with pytest.raises(ValueError, match=r"expects float32 arrays; got bfloat16 of shape \(2,\)"):
        ops.gaussians([x.astype(jnp.bfloat16)], KEY, 1.0)
