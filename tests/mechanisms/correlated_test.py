"""Correlated noise: `C^-1` times the draws, as a dense product in float64."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.structure import custom_calls
from support.tolerance import assert_bits_equal

import bk_jax
from bk_jax import mechanisms, ops
from bk_jax.mechanisms import toeplitz

STEPS, SIZES = 7, ((3, 50), ())
KINDS = {
    "banded inverse": mechanisms.BandedInverse.square_root(3),
    "one band": mechanisms.BandedInverse((1.0,)),
    "scaled inverse": mechanisms.BandedInverse((0.5, -0.25, 0.0, 0.125)),
    "banded": mechanisms.BandedToeplitz.square_root(4),
    "scaled banded": mechanisms.BandedToeplitz((2.0, 1.0)),
    "diagonal": mechanisms.BandedToeplitz((2.0,)),
    "buffered": mechanisms.BufferedToeplitz((0.9, 0.5), (0.3, 0.2)),
}
PARTICIPATION = mechanisms.SingleParticipation(STEPS)


def loss_fn(params, x):
    return jnp.sum(params["w"] * x) + params["b"]


def make(noise, noise_multiplier=1.0, **options):
    grad_fn = bk_jax.dp_value_and_grad(
        loss_fn, noise_multiplier=noise_multiplier, normalize_by=4.0, **options
    )
    return mechanisms.correlated(grad_fn, noise, PARTICIPATION)


def zeros():
    return {"b": np.zeros((), np.float32), "w": np.zeros((3, 50), np.float32)}


def run(private, key, first=0, last=STEPS, state=None):
    """Noise of the steps, from sums of 0."""

    @jax.jit
    def one(sums, state, step):
        keys = mechanisms.recent_keys(key, step, private.noise.keys_needed)
        return private.release(sums, state, keys=keys, step=step)

    state = private.init(zeros()) if state is None else state
    released = []
    for step in range(first, last):
        grads, state = one(zeros(), state, step)
        released.append(jax.tree.map(np.asarray, grads))
    return released, state


def draws(key, stream, shape):
    """The independent draws of all steps, in float64."""
    keys = [jax.random.key_data(jax.random.fold_in(key, step)) for step in range(STEPS)]
    made = [ops.gaussian(jnp.zeros(shape), words, 1.0, stream=stream) for words in keys]
    return np.stack([np.asarray(z, np.float64) for z in made])


@pytest.mark.parametrize("name", KINDS)
def test_noise_is_the_inverse_times_the_draws(name, implementation):
    private = make(KINDS[name], 0.7, l2_clip_norm=3.0)
    key = bk_jax.random.key(1)
    released, _ = run(private, key)
    strategy = KINDS[name].strategy(STEPS)
    dense = np.linalg.inv(toeplitz.matrix(strategy, STEPS))
    stddev = 0.7 * 3.0 * np.linalg.norm(strategy)
    for stream, leaf, shape in [(0, "b", ()), (1, "w", (3, 50))]:
        expected = stddev / 4 * np.tensordot(dense, draws(key, stream, shape), axes=1)
        found = np.stack([grads[leaf] for grads in released])
        np.testing.assert_allclose(found, expected, rtol=0, atol=3e-6 * stddev)


@pytest.mark.parametrize("name", KINDS)
def test_both_columns_are_inverse_to_each_other(name):
    strategy, inverse = KINDS[name].strategy(20), KINDS[name].inverse(20)
    product = toeplitz.matrix(strategy, 20) @ toeplitz.matrix(inverse, 20)
    np.testing.assert_allclose(product, np.eye(20), atol=1e-14)


@pytest.mark.parametrize("name", KINDS)
def test_a_resumed_run_has_the_same_noise(name):
    """From a state that went through bytes, as a checkpoint does."""
    private, key = make(KINDS[name]), bk_jax.random.key(2)
    whole, _ = run(private, key)
    _, state = run(private, key, last=4)
    saved = jax.tree.map(lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape), state)
    rest, _ = run(private, key, first=4, state=saved)
    for a, b in zip(jax.tree.leaves(whole[4:]), jax.tree.leaves(rest), strict=True):
        assert_bits_equal(a, b)


@pytest.mark.parametrize("name", KINDS)
def test_what_is_stored(name):
    noise = KINDS[name]
    state = make(noise).init(zeros())
    expected = sum(noise.arrays_stored * int(np.prod(shape)) for shape in SIZES)
    assert sum(leaf.size for leaf in jax.tree.leaves(state)) == expected
    if isinstance(noise, mechanisms.BandedInverse):
        assert jax.tree.leaves(state) == []


@pytest.mark.native
def test_a_banded_inverse_is_one_call_for_each_parameter():
    private, key = make(mechanisms.BandedInverse.square_root(5)), bk_jax.random.key(0)

    def one(sums, step):
        keys = mechanisms.recent_keys(key, step, 5)
        return private.release(sums, (), keys=keys, step=step)[0]

    calls = custom_calls(jax.jit(one).lower(zeros(), 3).compile().as_text())
    assert calls.count("bk_banded_gaussian") == 2
    assert "bk_gaussian" not in calls


@pytest.mark.native
def test_one_band_is_the_noise_of_grad_fn():
    grad_fn = bk_jax.dp_value_and_grad(loss_fn, noise_multiplier=0.7, l2_clip_norm=3.0)
    private = mechanisms.correlated(grad_fn, mechanisms.BandedInverse((1.0,)), PARTICIPATION)
    key = bk_jax.random.key(3)
    keys = mechanisms.recent_keys(key, 2, 1)
    found, _ = private.release(zeros(), (), keys=keys, step=2)
    expected = grad_fn.release(zeros(), jax.random.fold_in(key, 2))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert_bits_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("make_key", [jax.random.key, bk_jax.random.key])
def test_keys_of_any_kind(make_key):
    """The keys of steps before the first are not used."""
    private = make(KINDS["banded inverse"])
    key = make_key(0)
    first, _ = run(private, key, last=1)
    alone, _ = run(make(KINDS["one band"]), key, last=1)
    ratio = private.sensitivity() / make(KINDS["one band"]).sensitivity()
    np.testing.assert_allclose(first[0]["w"], alone[0]["w"] * ratio, rtol=1e-5)


def test_gradients_and_dtypes_come_through():
    """Integers stay; the result has the dtypes of the parameters; the divisor is applied once."""
    private = make(KINDS["banded"], 1e-6)
    sums = {"w": np.full((3, 50), 8, np.float32), "b": np.zeros((), np.float32)}
    like = jax.tree.map(lambda x: x.astype(jnp.bfloat16), sums)
    keys = mechanisms.recent_keys(bk_jax.random.key(0), 0, 1)
    out, _ = private.release(sums, private.init(sums), keys=keys, step=0, like=like)
    assert out["w"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.asarray(out["w"], np.float32), 2.0)


def test_prefix_sums_are_less_noisy_at_equal_epsilon():
    """What it is for: the variance of the last prefix sum against independent noise."""
    steps = 64
    participation = mechanisms.SingleParticipation(steps)

    def variance(noise):
        prefix = np.cumsum(noise.inverse(steps))
        return participation.sensitivity(noise.strategy(steps)) ** 2 * np.sum(prefix**2)

    independent = variance(mechanisms.BandedInverse((1.0,)))
    assert independent == pytest.approx(steps)
    assert variance(mechanisms.BandedInverse.square_root(16)) < 0.2 * independent
    assert variance(mechanisms.BandedToeplitz.square_root(16)) < 0.2 * independent


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mechanisms.correlated(loss_fn, KINDS["banded"], PARTICIPATION),
         "correlated expects grad_fn to be what dp_value_and_grad returned"),
        (lambda: make(KINDS["banded"]).release(zeros(), (), keys=bk_jax.random.key(0), step=0),
         "an array of 1 PRNG keys, newest first"),
        (lambda: make(KINDS["banded inverse"]).release(zeros(), (), keys=3, step=0),
         "an array of 3 PRNG keys, newest first"),
        (lambda: mechanisms.BufferedToeplitz((0.5, 1.5), (1.0, 1.0)), "expects decays in [0, 1)"),
        (lambda: mechanisms.BufferedToeplitz((0.5,), (1.0, 1.0)), "and as many scales"),
        (lambda: mechanisms.BandedInverse(()), "must be a list of finite numbers"),
        (lambda: mechanisms.BandedToeplitz((-1.0,)), "must begin with a positive number"),
        *[
            (functools.partial(kind.square_root, bands), message)
            for kind in (mechanisms.BandedInverse, mechanisms.BandedToeplitz)
            for bands, message in [
                (0, "bands must be a whole number of at least 1, got 0"),
                (-3, "bands must be a whole number of at least 1, got -3"),
                (2.5, "bands must be a whole number, got 2.5"),
            ]
        ],
    ],
)  # fmt: skip
def test_errors(call, message):
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        call()


def test_a_traced_clip_norm_is_refused():
    @jax.jit
    def traced(norm):
        make(KINDS["banded"], l2_clip_norm=norm)
        return norm

    with pytest.raises(ValueError, match="needs one l2_clip_norm for all steps"):
        traced(1.0)


def test_on_several_devices_each_makes_its_part():
    from support.process import run_python

    code = """
import jax, numpy as np, jax.numpy as jnp, bk_jax
from bk_jax import mechanisms
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
grad_fn = bk_jax.dp_value_and_grad(lambda w, x: (w * x).sum())
for noise in (mechanisms.BandedInverse.square_root(3), mechanisms.BandedToeplitz.square_root(3),
              mechanisms.BufferedToeplitz((0.9,), (0.3,))):
    private = mechanisms.correlated(grad_fn, noise, mechanisms.SingleParticipation(5))
    key = bk_jax.random.key(0)
    def one(sums, state, step):
        keys = mechanisms.recent_keys(key, step, noise.keys_needed)
        return private.release(sums, state, keys=keys, step=step)
    results = []
    for spec in (P(), P("x"), P(None, "x")):
        sums = jax.device_put(np.zeros((8, 300), np.float32), NamedSharding(mesh, spec))
        state = private.init(sums)
        part = sums.sharding.shard_shape(sums.shape)
        for step in range(4):
            assert len(state) == (noise.arrays_stored > 0)
            for kept in state:  # each device has that of its part of the parameters
                of_device = kept.sharding.shard_shape(kept.shape)
                assert of_device == (noise.arrays_stored, *part), (step, kept.sharding)
            out, state = jax.jit(one)(sums, state, step)
        results.append(np.asarray(out))
    assert np.abs(results[0]).max() > 1
    for other in results[1:]:
        if noise.arrays_stored == 0:
            assert (other == results[0]).all()
        np.testing.assert_allclose(other, results[0], atol=1e-5)
print("same")
"""
    flags = "--xla_force_host_platform_device_count=4"
    out = functools.partial(run_python, timeout=300)(code, XLA_FLAGS=flags)
    assert out.stdout.strip() == "same"
