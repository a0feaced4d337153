"""Is it Gaussian, and independent? Fixed keys, so the answer does not change from run to run.

The last tests feed the same checks with flawed noise: they must notice.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import gaussianity

from bk_jax import ops

KEY = np.asarray([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 1, 2, 3, 4], np.uint32)
SIZE = 2**22
# Neighbours, the partner of a pair (16), rows of a group, groups (256), chunks of a task (16384).
LAGS = [*range(1, 33), 48, 64, 128, 240, 255, 256, 257, 4096, 16384]
TAIL_SIZE = 2**29
LIMITS = np.asarray([1.0, 2.0, 3.0, 4.0, 4.5, 5.0, 5.5, 6.0])


def sample(key=KEY, size=SIZE, dtype=np.float32, **options):
    draw = jax.jit(lambda key: ops.gaussian(jnp.zeros(size, dtype), key, 1.0, **options))
    return np.asarray(draw(key)).astype(np.float64)


@pytest.fixture(scope="module")
def values():
    return sample()


@pytest.mark.native
def test_moments_up_to_the_eighth():
    assert gaussianity.report(gaussianity.moments(sample(size=2**24))) == []


@pytest.mark.native
def test_distribution(values):
    assert gaussianity.report(gaussianity.distribution(values)) == []


@pytest.mark.native
def test_doubles(x64):
    values = sample(dtype=np.float64)
    assert gaussianity.report(gaussianity.moments(values)) == []
    assert gaussianity.report(gaussianity.distribution(values)) == []
    assert gaussianity.report(gaussianity.lags(values, [1, 2, 15, 16, 17, 128])) == []


def count_beyond(z):
    """How many are larger than each of the limits, in absolute value."""
    z = np.abs(z)
    far = z[z > LIMITS[2]]  # few: to copy more takes longer than to count them
    return np.asarray([np.count_nonzero((z if n < 2 else far) > x) for n, x in enumerate(LIMITS)])


@pytest.mark.native
def test_tails_up_to_six_sigma():
    """5e8 values: one is expected beyond 6 sigma, 20 beyond 5.5, 308 beyond 5."""
    chunk = 2**24

    @jax.jit
    def draw(start):
        return ops.gaussian(jnp.zeros(chunk), KEY, 1.0, start=[start], whole=[TAIL_SIZE])

    counts = sum(count_beyond(draw(np.int32(at))) for at in range(0, TAIL_SIZE, chunk))
    findings = list(gaussianity.tails(counts, LIMITS, TAIL_SIZE))
    assert gaussianity.report(iter(findings)) == []
    assert counts[-2] > 0, findings


@pytest.mark.native
def test_neighbours_are_not_correlated(values):
    assert gaussianity.report(gaussianity.lags(values, LAGS)) == []


@pytest.mark.native
@pytest.mark.parametrize("bit", [0, 1, 31, 32, 100, 255])
def test_keys_that_differ_in_one_bit(values, bit):
    other = KEY.copy()
    other[bit // 32] ^= np.uint32(1 << bit % 32)
    assert gaussianity.report(gaussianity.correlation(f"bit {bit}", values, sample(other))) == []


@pytest.mark.native
@pytest.mark.parametrize("stream", [1, 2, 2**16, 2**31, 2**32 - 1])
def test_streams(values, stream):
    other = sample(stream=stream)
    assert gaussianity.report(gaussianity.correlation(f"stream {stream}", values, other)) == []


@pytest.mark.native
def test_far_away_in_the_same_stream(values):
    """The same place 2^36 values further on, where the high half of the block index counts."""
    far = sample(size=SIZE, start=[0], whole=[SIZE])
    assert np.array_equal(far, values)
    draw = jax.jit(
        lambda: ops.gaussian(jnp.zeros((1, SIZE)), KEY, 1.0, start=[2**14, 0], whole=[2**15, SIZE])
    )
    other = np.asarray(draw()).astype(np.float64).ravel()
    assert gaussianity.report(gaussianity.correlation("2^36", values, other)) == []


FLAWS = {
    "too wide by 0.2 %": lambda z: z * 1.002,
    "shifted by 0.003": lambda z: z + 0.003,
    "a sum of twelve uniforms": lambda z: np.random.default_rng(0).random((12, z.size)).sum(0) - 6,
    "on a grid of 1/64": lambda z: np.round(z * 64) / 64,
    "without tails": lambda z: np.clip(z, -3.5, 3.5),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flawed_distribution_is_noticed(flaw):
    z = FLAWS[flaw](np.random.default_rng(1).normal(size=SIZE))
    found = [*gaussianity.moments(z), *gaussianity.distribution(z)]
    assert gaussianity.report(iter(found)) != []


def test_dependence_is_noticed():
    z = np.random.default_rng(1).normal(size=SIZE)
    near = range(1, 18)
    assert gaussianity.report(gaussianity.lags(z, near)) == []
    repeated = z.reshape(-1, 256).copy()
    repeated[:, 17] = -repeated[:, 0]  # one word of a group used twice
    assert gaussianity.report(gaussianity.lags(repeated.ravel(), near)) != []
    sizes = z * np.repeat(np.asarray([0.9, 1.1]), 16)[np.arange(z.size) % 32]
    assert gaussianity.report(gaussianity.lags(sizes, near)) != []


def test_missing_tails_are_noticed():
    expected = TAIL_SIZE * 2 * gaussianity.special.ndtr(-LIMITS)
    counts = expected.round().astype(int)
    assert gaussianity.report(gaussianity.tails(counts, LIMITS, TAIL_SIZE)) == []
    counts[-2] = 0  # nothing beyond 5.5 sigma
    assert gaussianity.report(gaussianity.tails(counts, LIMITS, TAIL_SIZE)) != []
