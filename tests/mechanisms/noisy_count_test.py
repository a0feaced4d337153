"""The noise of adaptive clipping's counts: whatever is published is possible for a neighbour, too."""

from __future__ import annotations

import fractions
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.process import run_python

import bk_jax
from bk_jax import mechanisms, ops
from bk_jax.mechanisms import AdaptiveClipping

CLIP = AdaptiveClipping(batch_size=100)
FARTHEST = 16 << 24  # noise lies below, and may be anything there
NEIGHBOURS = [(0.0, 0.5), (30.0, 29.5), (-50.0, -49.5)]


def impossible(published, possible):
    """The share of what is published for one data set that cannot be for its neighbour."""
    return 1 - np.isin(published, possible).mean()


def norms_of(monkeypatch, votes, noise, clip=CLIP):
    """What `moved` makes of each noise, in grid steps."""
    monkeypatch.setattr(AdaptiveClipping, "_noise", lambda self, votes, key: key)
    moved = jax.vmap(lambda noise: clip.moved(jnp.float32(1), jnp.float32([votes]), key=noise))
    return np.asarray(jax.jit(moved)(jnp.asarray(noise, jnp.int32)[:, None]))


def drawn(size, bits=24):
    key = np.arange(8, dtype=np.uint32)
    return np.asarray(ops.discrete_gaussian(jnp.zeros(size, jnp.int32), key, bits=bits))


@pytest.mark.parametrize(("votes", "neighbour"), NEIGHBOURS)
def test_every_published_norm_is_possible_for_the_neighbour(monkeypatch, votes, neighbour):
    """By the noise that lies as many steps away as one example moves the count; it can be drawn."""
    noise, steps = drawn(50_000), CLIP.grid[0]
    other = noise + round(2 * (votes - neighbour)) * steps
    assert abs(other).max() < FARTHEST
    norms = [norms_of(monkeypatch, *each) for each in [(votes, noise), (neighbour, other)]]
    np.testing.assert_array_equal(*norms)
    assert len(np.unique(norms[0])) > 10_000


def test_the_check_finds_noise_of_few_bits():
    """As floats of 16 random bits are; the 23 of `jax.random.normal` leave 5 norms of a thousand."""
    uniform = (np.arange(2**16, dtype=np.float32) + 0.5) / 2**15 - 1
    noise = 5 * jnp.float32(np.sqrt(2)) * jax.lax.erf_inv(jnp.asarray(uniform))
    norms = [np.asarray(jnp.exp(-0.2 * (votes + noise) / 100)) for votes in (30.0, 29.5)]
    assert impossible(*norms) > 0.1


@pytest.mark.parametrize("stddev", [2.0**-23, 0.01, 0.7, 5.0, 4000.0, 2.0**23])
def test_what_is_published_is_a_function_of_one_whole_number(stddev):
    """Of twice the votes, in steps, plus noise; computed without overflow."""
    clip = AdaptiveClipping(batch_size=1 << 22, count_stddev=stddev)
    steps, bits = clip.grid
    far = (16 << bits) - 1
    votes = np.float32([-(2.0**22), -3.5, 0, 0.5, 7, 2.0**22 - 0.5])
    noises = [-far, -steps - 1, -steps, -1, 0, 1, steps - 1, steps, far]
    for noise in [noise for noise in noises if abs(noise) <= far]:
        whole = [round(2 * float(v)) * steps + noise for v in votes]
        expected = [float(fractions.Fraction(n, 2 * steps)) for n in whole]
        found = clip._noisy(jnp.asarray(votes), jnp.int32(noise))
        np.testing.assert_allclose(found, expected, rtol=3e-7, atol=1e-7)
        moved = clip._noisy(jnp.asarray(votes + 1), jnp.int32(noise - steps))
        shifted = clip._noisy(jnp.asarray(votes + 0.5), jnp.int32(noise))
        np.testing.assert_array_equal(moved, shifted)


@pytest.mark.parametrize("stddev", [2.0**-23, 1e-6, 0.49, 1.0, 5.0, 20.0, 4321.0, 2.0**23])
def test_the_grid_has_at_least_the_declared_noise(stddev):
    """One example moves a count by 1/2, which is `steps`; noise has a deviation of `2^bits`."""
    steps, bits = AdaptiveClipping(batch_size=9, count_stddev=stddev).grid
    ratio = fractions.Fraction(2**bits, steps) / (2 * fractions.Fraction(stddev))
    assert 1 <= ratio <= 1 + fractions.Fraction(2, steps)
    assert 8 <= bits <= 24
    assert steps <= 2**30
    assert bits == 24 or stddev < 1 / 128


@pytest.mark.parametrize("sigma", [2.0, 4.0, 16.0, 64.0])
def test_a_discrete_gaussian_is_nearly_a_rounded_one(sigma):
    """docs/numerics.md: their distance is below 1/16 of the variance's inverse, in total variation."""
    near = range(-round(12 * sigma), round(12 * sigma) + 1)
    weights = np.asarray([math.exp(-n * n / (2 * sigma**2)) for n in near])
    rounded = [
        (math.erf((n + 0.5) / (sigma * 2**0.5)) - math.erf((n - 0.5) / (sigma * 2**0.5))) / 2
        for n in near
    ]
    distance = np.sum(abs(weights / weights.sum() - rounded)) / 2
    assert 0.01 / sigma**2 < distance < 1 / (16 * sigma**2)


def test_the_noise_has_the_declared_deviation_and_each_group_its_own():
    clip = AdaptiveClipping(batch_size=100, count_stddev=3.0, groups=2)
    keys = jax.random.split(bk_jax.random.key(1), 4000)
    votes = jnp.float32([10.0, -4.5])
    noisy = jax.jit(jax.vmap(lambda key: clip._noisy(votes, clip._noise(votes, key))))(keys)
    noise = (np.asarray(noisy, np.float64) - votes) / 3
    assert np.all(abs(noise.mean(axis=0)) < 5 / np.sqrt(4000))
    assert np.all(abs(noise.std(axis=0) - 1) < 5 / np.sqrt(8000))
    assert abs(np.corrcoef(noise.T)[0, 1]) < 5 / np.sqrt(4000)


def test_it_is_not_the_noise_of_the_gradient():
    """Both come from the step's key, and noise of gradients may be on a grid as well."""
    key = bk_jax.random.key(5)
    clip = AdaptiveClipping(batch_size=100, groups=3)
    counts = clip._noise(jnp.zeros(3), key)
    words = jax.random.key_data(key)
    gradient = ops.discrete_gaussian(jnp.zeros(3, jnp.int32), words, bits=24)
    assert not set(counts.tolist()) & set(gradient.tolist())


def test_models_under_vmap_need_keys_of_their_own():
    votes, moved = jnp.zeros((2, 1)), lambda votes, key: CLIP.moved(1.0, votes, key=key)
    key = bk_jax.random.key(0)
    with pytest.raises(ValueError, match="shares one key between 2 models"):
        jax.eval_shape(jax.vmap(moved, in_axes=(0, None)), votes, key)
    norms = jax.jit(jax.vmap(moved))(votes, jax.random.split(key, 2))
    assert norms[0] != norms[1]


def test_norms_are_the_same_on_several_devices():
    """Votes that are added up over devices, by XLA and by hand."""
    code = """
import jax, numpy as np, jax.numpy as jnp, bk_jax
from bk_jax.mechanisms import AdaptiveClipping
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
clip, key = AdaptiveClipping(batch_size=8), bk_jax.random.key(0)
def stats(norms):
    return bk_jax.Stats(norms, norms, norms, 0.0, 0)
def update(norms, key):
    return clip.update(jnp.float32(2), stats(norms), key=key)
def by_hand(norms, key):
    return clip.moved(jnp.float32(2), jax.lax.psum(clip.votes(2.0, stats(norms)), "x"), key=key)
norms = np.arange(8, dtype=np.float32)
cut = jax.device_put(norms, NamedSharding(mesh, P("x")))
mapped = jax.shard_map(by_hand, mesh=mesh, in_specs=(P("x"), P()), out_specs=P())
found = [jax.jit(update)(norms, key), jax.jit(update)(cut, key), jax.jit(mapped)(cut, key)]
assert found[0] != 2
assert all(other == found[0] for other in found), found
print("same")
"""
    out = run_python(code, timeout=300, XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert out.stdout.strip() == "same"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"batch_size": 2**22 + 1},
            "is too large for counts that are exact in float32. Make it at most 2^22",
        ),
        ({"batch_size": 9, "count_stddev": 1e-7}, "count_stddev must be between 2^-23 and 2^23"),
        ({"batch_size": 9, "count_stddev": 1e7}, "got 1e+07; a twentieth of batch_size is usual."),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        mechanisms.AdaptiveClipping(**options)
