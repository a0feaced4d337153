"""Discrete Gaussian noise: against a slow sampler in exact arithmetic, and against its distribution."""

from __future__ import annotations

import fractions
import functools
import importlib
import itertools
import math
import re

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import stats

from bk_jax import ops
from bk_jax.ops import _gaussian_pieces as pieces
from bk_jax.ops.chacha import GRID, chacha_blocks

KEY = np.arange(1, 9, dtype=np.uint32)
BITS = 9
COUNT = 1 << 16
module = importlib.import_module("bk_jax.ops.discrete_gaussian")  # `ops` has the function


def number(words):
    """Words, the most significant first, as one integer."""
    return functools.reduce(lambda total, word: (total << 32) | int(word), words, 0)


def slow_run(words, g, width, further):
    """The length of a run, in fractions; `further(step)` are the words of a later block."""

    def uniform(pair):
        return fractions.Fraction(number(pair) % (1 << width), 1 << width)

    if not uniform(words[5:7]) < g:
        return 0
    last, v = number(words[9:12]), number(words[12:15])
    if not (uniform(words[7:9]) < g and v < last):
        return 1
    length = 2
    while True:
        more = further(length - 1)
        last, v = v, number(more[2:5])
        if not (uniform(more[:2]) < g and v < last):
            return length
        length += 1


def slow_value(blocks, bits):
    """One value: `blocks(attempt, step)` are its words."""
    for attempt in range(99):
        words = [int(word) for word in blocks(attempt, 0)]
        k = sum(number(words[:4]) < chance for chance in pieces.survival())
        j = (words[4] >> 1) % (1 << (bits - 8))
        n = k * 2 ** (bits - 8) + j
        g = fractions.Fraction(n * n - (n - j) ** 2, 2 * 4**bits)
        length = slow_run(words, g, 2 * bits + 1, functools.partial(blocks, attempt))
        if length % 2 == 0 and not (words[4] % 2 and n == 0):
            return -n if words[4] % 2 else n
    raise AssertionError("rejected 99 times")


@functools.cache
def noise(count=COUNT, bits=BITS, stream=3):
    zeros = jnp.zeros(count, jnp.int32)
    return np.asarray(ops.discrete_gaussian(zeros, KEY, bits=bits, stream=stream))


@jax.jit
def one_block(low, tag):
    return chacha_blocks(jnp.asarray(KEY), low[None], 0, stream=3, domain=tag)[:, 0]


def block(position, attempt, step):
    tag = np.uint32(GRID | (step << 8) | (attempt << 16))
    return np.asarray(one_block(np.uint32(position), tag))


def test_values_are_those_of_the_slow_sampler():
    """The first ones, and those that the fast sampler is likeliest to get wrong: the largest."""
    values = noise()
    chosen = [*range(40), *np.argsort(-abs(values))[:10].tolist()]
    expected = [slow_value(functools.partial(block, position), BITS) for position in chosen]
    assert values[chosen].tolist() == expected


def crafted(pairs, runs):
    """Words whose numbers `U` and `V` are as given, for the first block, and later blocks."""
    words = np.zeros((16, 1), np.uint32)
    words[5:7, 0], words[7:9, 0] = pairs[:2]
    words[9:12, 0], words[12:15, 0] = runs[:2]
    rest = zip(pairs[2:], runs[2:], strict=True)
    later = [np.asarray([*u, *v, *[0] * 11], np.uint32)[:, None] for u, v in rest]
    return words, later


@pytest.mark.parametrize(
    ("runs", "length"),
    [
        ([(5, 0, 0), (5, 0, 1), (0, 0, 0)], 1),
        ([(5, 0, 1), (5, 0, 1), (0, 0, 0)], 1),  # a tie is no run
        ([(5, 0, 1), (5, 0, 0), (5, 0, 0)], 2),
        ([(5, 0, 3), (5, 0, 2), (5, 0, 1), (6, 0, 0)], 3),
        ([(9, 0, 0), (8, 0, 0), (7, 0, 0), (6, 0, 0), (6, 0, 1)], 4),
    ],
)
def test_runs_that_hardly_ever_happen(runs, length):
    """U is 0, so below g; the V decide."""
    words, later = crafted([(0, 0)] * len(runs), runs)
    stacked = jnp.stack([jnp.asarray(each) for each in later])
    short = (jnp.zeros(1, jnp.uint32), jnp.ones(1, jnp.uint32))  # g = 2^-(2 bits + 1)
    found = module._run_length(jnp.asarray(words), lambda step: stacked[step - 1], short, BITS)
    further = lambda step: later[step - 1][:, 0]  # noqa: E731
    slow = slow_run(words[:, 0], fractions.Fraction(1, 2 * 4**BITS), 2 * BITS + 1, further)
    assert found.tolist() == [length]
    assert slow == length


def test_ties_of_the_first_word_are_decided_by_the_others():
    """Numbers at, just below and just above chances, in the middle and in the far tail."""
    chances = pieces.survival()
    places = [0, 1, 255, 700, 2400, 3000, 3900, len(chances) - 1]
    numbers = [max(0, chances[k] + d) for k in places for d in (-1, 0, 1)]
    numbers += [0, 2**128 - 1, 1 << 96, (1 << 96) - 1]
    words = np.asarray(
        [[(n >> s) & 0xFFFFFFFF for n in numbers] for s in (96, 64, 32, 0)], np.uint32
    )
    expected = [sum(n < chance for chance in chances) for n in numbers]
    assert module._piece(jnp.asarray(words)).tolist() == expected
    assert module._piece(jnp.asarray(words[:, 1:2])).tolist() == expected[1:2]


def test_chances_of_pieces():
    """The table, against another library, in all of its 128 bits."""
    with mpmath.workprec(300):
        weights = [mpmath.exp(-mpmath.mpf(k * k) / (2 * 256**2)) for k in range(pieces.PIECES)]
        total = mpmath.fsum(weights)
        for k in (1, 2, 300, 2000, pieces.PIECES - 1):
            chance = mpmath.fsum(weights[k:]) / total
            assert pieces.survival()[k - 1] == int(mpmath.floor(mpmath.ldexp(chance, 128)))
    assert list(pieces.survival()) == sorted(pieces.survival(), reverse=True)


def test_what_is_cut_off_and_what_is_rounded():
    """The figures of the module: 2^-180 beyond 16 deviations, 2^-100 altogether."""
    with mpmath.workprec(100):
        assert mpmath.erfc(16 / mpmath.sqrt(2)) < mpmath.mpf(2) ** -180
    pieces_off, ties = pieces.PIECES * 2.0**-128, 2.0**-96 / 100  # a run of 2 is rarer than that
    assert 2.0**-180 + pieces_off + ties < 2.0**-100


def chance(n, bits=BITS):
    sigma = 2.0**bits
    return math.exp(-(n * n) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))


def test_chi_squared_against_the_exact_chances():
    """All values up to 4 deviations in 100 classes, and the rest."""
    edges = np.linspace(-4 * 2**BITS, 4 * 2**BITS, 101).astype(int)
    classes = [(-(2**20), edges[0]), *itertools.pairwise(edges), (edges[-1], 2**20)]
    far = 16 << BITS
    expected = [sum(chance(n) for n in range(max(a, -far), min(b, far))) for a, b in classes]
    counts = [np.sum((noise() >= a) & (noise() < b)) for a, b in classes]
    assert sum(expected) == pytest.approx(1, abs=1e-12)
    assert stats.chisquare(counts, np.asarray(expected) * COUNT).pvalue > 1e-3


def test_the_last_bits_are_uniform_and_zero_is_not_counted_twice():
    """At the least deviation every value near 0 counts; rejection would show here first."""
    values = noise(bits=8, stream=4)
    near = np.arange(-6, 7)
    counts = np.asarray([np.sum(values == n) for n in near])
    expected = np.asarray([chance(n, 8) for n in near]) * COUNT
    assert np.all(abs(counts - expected) < 5 * np.sqrt(expected))
    assert stats.chisquare(np.bincount(values % 8, minlength=8)).pvalue > 1e-3


def test_moments_and_tails():
    z = noise() / 2.0**BITS
    for order, moment, spread in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)]:
        assert abs(np.mean(z**order) - moment) < 5 * math.sqrt(spread / COUNT)
    for far in (2, 3, 3.5):
        rate = math.erfc(far / math.sqrt(2))
        assert abs(np.mean(abs(z) > far) - rate) < 5 * math.sqrt(rate / COUNT)


def test_any_cut_gives_the_same_values():
    whole = jnp.zeros((5, 7, 3), jnp.int32)
    expected = np.asarray(ops.discrete_gaussian(whole, KEY, bits=12))
    for start, size in [((0, 0, 0), (2, 7, 3)), ((4, 2, 1), (1, 5, 2)), ((1, 0, 2), (3, 7, 1))]:
        part = ops.discrete_gaussian(
            jnp.zeros(size, jnp.int32), KEY, bits=12, start=start, whole=(5, 7, 3)
        )
        there = tuple(slice(a, a + n) for a, n in zip(start, size, strict=True))
        np.testing.assert_array_equal(part, expected[there])
    long = noise()
    np.testing.assert_array_equal(
        ops.discrete_gaussian(jnp.zeros(9, jnp.int32), KEY, bits=BITS, stream=3), long[:9]
    )


def test_places_beyond_32_bits():
    """The position counts, not its lower half."""
    at = [[1, 0], [2**20, 0], [2**20 + 1, 0]]
    whole = (2**21, 2**12)  # element 2^20 * 2^12 = 2^32
    rows = [
        np.asarray(
            ops.discrete_gaussian(jnp.zeros((1, 8), jnp.int32), KEY, bits=12, start=s, whole=whole)
        )
        for s in at
    ]
    assert len({row.tobytes() for row in rows}) == 3


def test_it_is_added_modulo_2_to_the_32():
    x = jnp.full(100, 2**31 - 1, jnp.int32)
    expected = noise(100, 12, 0).astype(np.int64) + (2**31 - 1)
    np.testing.assert_array_equal(
        np.asarray(ops.discrete_gaussian(x, KEY, bits=12)), expected.astype(np.int32)
    )


def test_nothing_and_scalars():
    assert ops.discrete_gaussian(jnp.zeros((0, 3), jnp.int32), KEY, bits=8).shape == (0, 3)
    assert ops.discrete_gaussian(jnp.int32(5), KEY, bits=8).shape == ()


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (jnp.zeros(3), {"bits": 9}, "expects int32 and 8 <= bits <= 24, got float32 and bits=9"),
        (jnp.zeros(3, jnp.int32), {"bits": 25}, "got int32 and bits=25"),
        (jnp.zeros(3, jnp.int32), {"bits": 9, "start": [0]}, "expects start and whole together"),
    ],
)
def test_errors(x, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ops.discrete_gaussian(x, KEY, **options)
