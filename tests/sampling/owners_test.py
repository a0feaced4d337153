"""Examples with several owners."""

import re
from collections import Counter

import numpy as np
import pytest

from bk_jax.sampling import bound_owners


def random_owners(seed, examples=60, people=12):
    rng = np.random.default_rng(seed)
    return [
        tuple(rng.choice(people, size=rng.integers(1, 5), replace=False).tolist())
        for _ in range(examples)
    ]


@pytest.mark.parametrize("limit", [1, 2, 5])
@pytest.mark.parametrize("seed", range(5))
def test_nobody_owns_too_many_and_nothing_more_fits(seed, limit):
    owners = random_owners(seed)
    kept = bound_owners(owners, limit)
    owned = Counter(person for number in kept for person in owners[number])
    assert max(owned.values()) <= limit
    left_out = sorted(set(range(60)) - set(kept.tolist()))
    assert all(any(owned[p] == limit for p in owners[number]) for number in left_out)
    assert kept.tolist() == sorted(set(kept.tolist()))


def test_one_owner_each_keeps_the_first_of_everybody():
    owners = [(number % 3,) for number in range(12)]
    assert bound_owners(owners, 2).tolist() == [0, 1, 2, 3, 4, 5]


def test_examples_of_few_people_come_first():
    assert bound_owners([(1, 2, 3), (1,), (2,), (3,)], 1).tolist() == [1, 2, 3]


def test_an_owner_named_twice_counts_once():
    assert bound_owners([("ann", "ann")], 1).tolist() == [0]


def test_no_examples():
    assert bound_owners([], 1).tolist() == []


@pytest.mark.parametrize(
    ("error", "message", "owners", "limit"),
    [
        (TypeError, "got 'ann' for example 0. With one owner each, use group_by_user", ["ann"], 1),
        (TypeError, "got 7 for example 1", [(1,), 7], 1),
        (ValueError, "example 1 has no owner", [(1,), ()], 1),
        (ValueError, "max_examples must be a whole number of at least 1, got 0", [(1,)], 0),
    ],
)
def test_errors(error, message, owners, limit):
    with pytest.raises(error, match=re.escape(message)):
        bound_owners(owners, limit)
