"""Poisson sampling: who is in a batch, with which chance, and what is cut."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import bk_jax
from bk_jax import privacy, sampling
from bk_jax.sampling import poisson


@pytest.fixture
def numbers(monkeypatch):
    """Lets a test choose the 64-bit numbers that examples draw."""

    def choose(values):
        monkeypatch.setattr(poisson, "numbers", lambda key, n: np.asarray(values, np.uint64))

    return choose


def test_a_step_draws_the_same_batch_again_and_another_one_does_not():
    sampler = sampling.PoissonSampler(1000, 50)
    root = bk_jax.random.key(3)
    first, again, other = (sampler.indices(jax.random.fold_in(root, step)) for step in (4, 4, 5))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.all(np.diff(first) > 0)


@pytest.mark.parametrize(("batch_size", "limit"), [(1, 2**62), (2, 2**63), (3, 3 * 2**62)])
def test_an_example_is_in_below_its_share_of_all_numbers(numbers, batch_size, limit):
    numbers([0, limit - 1, limit, 2**64 - 1])
    indices = sampling.PoissonSampler(4, batch_size).indices(jax.random.key(0))
    np.testing.assert_array_equal(indices, [0, 1])


def test_a_chance_between_two_numbers_is_rounded_down(numbers):
    third = (
        2**64 // 3
    )  # a third is no whole number of them, and 1 / 3 in floating point is below it
    numbers([third, third + 1, third - 2**11])
    indices = sampling.PoissonSampler(3, 1).indices(jax.random.key(0))
    np.testing.assert_array_equal(indices, [2])


def test_everyone_and_nobody(numbers):
    numbers([0, 2**64 - 1, 5])
    key = jax.random.key(0)
    np.testing.assert_array_equal(sampling.PoissonSampler(3, 3).indices(key), [0, 1, 2])
    assert sampling.PoissonSampler(3, 1e-30).indices(key).size == 0


def test_batches_have_binomial_sizes_and_reach_all_examples():
    draws, chance = 100_000, 0.01
    chosen = sampling.PoissonSampler(draws, draws * chance).indices(bk_jax.random.key(0))
    spread = np.sqrt(draws * chance * (1 - chance))
    assert abs(len(chosen) - draws * chance) < 5 * spread
    tenths = np.bincount(chosen * 10 // draws, minlength=10)
    assert np.abs(tenths - len(chosen) / 10).max() < 5 * np.sqrt(len(chosen) / 10)


def test_two_words_of_the_generator_make_a_number():
    key = bk_jax.random.key(1)
    bits = jax.jit(lambda key: jax.random.bits(key, (3, 2), "uint32"))
    high, low = np.asarray(bits(key)).T.astype(object)
    assert poisson.numbers(key, 3).tolist() == (high * 2**32 + low).tolist()


def test_a_batch_that_is_too_large_keeps_the_smallest_numbers(numbers):
    numbers([7, 3, 2**64 - 1, 9, 1, 5])
    sampler = sampling.PoissonSampler(6, 3, max_batch_size=3)
    np.testing.assert_array_equal(sampler.indices(jax.random.key(0)), [1, 4, 5])


@pytest.mark.parametrize("size", [5, 6])
def test_a_batch_that_fits_is_whole(numbers, size):
    numbers([7, 3, 2**64 - 1, 9, 1, 5])
    sampler = sampling.PoissonSampler(6, 3, max_batch_size=size)
    np.testing.assert_array_equal(sampler.indices(jax.random.key(0)), [0, 1, 3, 4, 5])


def test_the_sampler_of_a_plan():
    plan = privacy.PrivacyPlan(
        num_examples=100,
        batch_size=10,
        steps=5,
        delta=1e-4,
        noise_multiplier=1,
        max_batch_size=16,
    )
    assert sampling.PoissonSampler.of(plan) == sampling.PoissonSampler(100, 10.0, 16)


def test_batch_samplers_give_lists_of_indices():
    sampler = sampling.PoissonSampler(6, 3)
    keys = [jax.random.key(0), jax.random.key(1)]
    lists = list(sampler.batches(keys))
    assert lists == [sampler.indices(key).tolist() for key in keys]
    assert all(type(index) is int for batch in lists for index in batch)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1), "num_examples must be a whole number of at least 1"),
        ((4, 5), "batch_size 5 exceeds num_examples 4"),
        ((4, 0), "batch_size must be finite and above 0"),
        ((4, 2, 1), "max_batch_size 1 is below the expected batch_size 2"),
    ],
)
def test_nonsense_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        sampling.PoissonSampler(*arguments)
