"""`bk_jax.random`: ChaCha20 as a JAX PRNG, against ChaCha20 in Python's integers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import chacha
from support.process import run_python
from support.tolerance import assert_bits_equal

import bk_jax
from bk_jax.ops import chacha as domains
from bk_jax.random import CHACHA20

KEY = bk_jax.random.key(7)
WORDS = np.asarray(jax.random.key_data(KEY)).tolist()


def data(key):
    return np.asarray(jax.random.key_data(key))


def words(key, size, width):
    count = -(-size * width // 32)
    return np.asarray([chacha.word(key, i, width, domains.BITS) for i in range(count)], np.uint32)


@pytest.mark.parametrize("seed", [0, 7, 2**31 - 1, 2**40 + 5, 2**256 - 1])
def test_seeds(seed):
    """The first half of the block whose key is the seed."""
    seed_words = [seed >> 32 * i & 0xFFFFFFFF for i in range(8)]
    expected = chacha.block(seed_words, 0, [0, 0, domains.SEED])[:8]
    assert data(bk_jax.random.key(seed)).tolist() == expected
    if seed < 2**31:
        assert data(jax.random.key(seed, impl=CHACHA20)).tolist() == expected


def test_wide_seeds_of_jax(x64):
    seed = 2**40 + 5
    assert_bits_equal(data(jax.random.key(seed, impl=CHACHA20)), data(bk_jax.random.key(seed)))


def test_without_a_seed_the_operating_system_decides():
    keys = [tuple(data(bk_jax.random.key()).tolist()) for _ in range(4)]
    assert len(set(keys)) == 4
    assert all(len(key) == 8 for key in keys)


@pytest.mark.parametrize("seed", [-1, 2**256, 1.5, "7", True])
def test_seed_errors(seed):
    with pytest.raises(ValueError, match="seed must be a whole number, 0 <= seed < "):
        bk_jax.random.key(seed)


def test_split():
    keys = jax.random.split(KEY, (2, 3))
    assert keys.shape == (2, 3)
    expected = [chacha.block(WORDS, i, [0, 0, domains.SPLIT])[:8] for i in range(6)]
    assert data(keys).reshape(6, 8).tolist() == expected


def test_fold_in():
    for number in (0, 1, 2**32 - 1):
        expected = chacha.block(WORDS, 0, [0, number, domains.FOLD_IN])[:8]
        assert data(jax.random.fold_in(KEY, number)).tolist() == expected


@pytest.mark.parametrize("width", [8, 16, 32])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (5, 7)])
def test_bits(width, shape):
    dtype = np.dtype(f"uint{width}")
    size = int(np.prod(shape))
    expected = words(WORDS, size, width).view(dtype)[:size].reshape(shape)
    assert_bits_equal(jax.random.bits(KEY, shape, dtype), expected)


def test_wide_bits(x64):
    expected = words(WORDS, 5, 64).view(np.uint64)
    assert_bits_equal(jax.random.bits(KEY, (5,), np.uint64), expected)


def test_many_bits_are_the_same_words(implementation):
    """Above a few words the custom call makes them."""
    many = np.asarray(jax.jit(lambda key: jax.random.bits(key, (5000,)))(KEY))
    for position in (0, 1, 17, 1023, 1024, 4999):
        assert int(many[position]) == chacha.word(WORDS, position, 32, domains.BITS)


def test_under_jit_vmap_and_scan():
    keys = jax.random.split(KEY, 3)

    def draw(key):
        return jax.random.normal(key, (5,)), jax.random.bits(key, (2000,))

    rows = jax.jit(jax.vmap(draw))(keys)
    for i in range(3):
        for row, expected in zip(rows, jax.jit(draw)(keys[i]), strict=True):
            assert_bits_equal(row[i], expected)

    def step(key, _):
        key, now = jax.random.split(key)
        return key, jax.random.uniform(now)

    _, values = jax.jit(lambda key: jax.lax.scan(step, key, length=4))(KEY)
    assert len(np.unique(values)) == 4


def test_distributions_of_jax():
    """Means and standard deviations within five standard errors."""
    size = 100_000
    uniform, normal, integers = jax.jit(
        lambda key: (
            jax.random.uniform(key, (size,)),
            jax.random.normal(key, (size,)),
            jax.random.randint(key, (size,), 0, 10),
        )
    )(KEY)
    assert abs(np.mean(uniform) - 0.5) < 5 * np.sqrt(1 / 12 / size)
    assert abs(np.mean(normal)) < 5 / np.sqrt(size)
    assert abs(np.std(normal) - 1) < 5 / np.sqrt(2 * size)
    counts = np.bincount(integers, minlength=10)
    assert np.abs(counts - size / 10).max() < 5 * np.sqrt(size * 0.09)


def test_domains_share_nothing():
    """What is drawn, split off, folded in, seeded and added as noise: no word appears twice."""
    listed = (domains.BITS, domains.SPLIT, domains.FOLD_IN, domains.SEED, domains.NOISE)
    assert len(set(listed)) == 5
    blocks = [chacha.block(WORDS, 0, [0, stream, d]) for d in listed for stream in (0, 32)]
    assert len({word for block in blocks for word in block}) == 16 * len(blocks)


def test_is_chacha():
    assert bk_jax.random.is_chacha(KEY)
    assert not bk_jax.random.is_chacha(jax.random.key(0))
    assert not bk_jax.random.is_chacha(jax.random.PRNGKey(0))
    assert not bk_jax.random.is_chacha(jnp.zeros(8, jnp.uint32))


def test_keys_survive_as_data():
    restored = jax.random.wrap_key_data(data(KEY), impl=CHACHA20)
    assert_bits_equal(jax.random.bits(restored, (3,)), jax.random.bits(KEY, (3,)))


def test_another_process_has_the_same_numbers():
    code = (
        "import jax, bk_jax\n"
        "key = jax.random.fold_in(jax.random.split(bk_jax.random.key(7))[1], 5)\n"
        "print(jax.random.bits(key, (2,)).tolist())"
    )
    child = jax.random.fold_in(jax.random.split(KEY)[1], 5)
    assert run_python(code).stdout.strip() == str(jax.random.bits(child, (2,)).tolist())
