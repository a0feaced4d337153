"""Examples with several owners: a message has a sender and receivers, a photograph everybody in it.

    kept = sampling.bound_owners(owners, max_examples=4)
    data = jax.tree.map(lambda x: x[kept], data)
    plan.epsilon(group_size=4)  # for a person, whatever the person's examples say

What is protected is what an owner's examples say. Who owns which example counts as public: whether one
example is kept depends on the owners of others, so the list of owners is not protected itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from typing import Any

import numpy as np

from bk_jax.privacy import checks


def bound_owners(owners: Sequence[Collection[Hashable]], max_examples: int) -> np.ndarray[Any, Any]:
    """Which examples to keep so that nobody owns more than `max_examples` of them, in order.

    Examples are taken while all of their owners may have one more: those with few owners first, because
    they leave room for others, and among equals in the order of the data. No example that is left out
    could be added. Shuffle the data first to keep a random choice.

    >>> bound_owners([("ann", "bob"), ("ann",), ("bob", "eve"), ("eve",)], max_examples=1)
    array([1, 3])
    >>> bound_owners([("ann", "bob"), ("ann",), ("bob", "eve"), ("eve",)], max_examples=2)
    array([0, 1, 2, 3])

    Args:
      owners: for each example, the people whose data it is; each example has at least one.
      max_examples: how many examples a person may own. A step is then private for a person as it is
        for a group of that many records.
    """
    limit = checks.whole_number("max_examples", max_examples, 1)
    of_example = [_people(number, given) for number, given in enumerate(owners)]
    order = sorted(range(len(of_example)), key=lambda number: len(of_example[number]))
    owned: Counter[Hashable] = Counter()
    kept = []
    for number in order:
        if all(owned[person] < limit for person in of_example[number]):
            owned.update(of_example[number])
            kept.append(number)
    return np.sort(np.asarray(kept, np.int64))


def _people(number: int, given: Any) -> frozenset[Hashable]:
    if isinstance(given, str) or not isinstance(given, Collection):
        raise TypeError(
            f"owners must hold a tuple or set of people for each example, got {given!r} for example "
            f"{number}. With one owner each, use group_by_user."
        )
    if not given:
        raise ValueError(
            f"example {number} has no owner, so nobody's privacy would be counted for it; leave it out, "
            "or name an owner."
        )
    return frozenset(given)
