"""The dimension numbers of gather and scatter, which are alike: which axis becomes which.

A gather takes windows out of an array, a scatter puts them in. Axes of the array are indexed, or are
paired with an axis of the indices, or lie whole in every window. Axes of the windows are those of the
array, without the ones that were removed, between those of the indices.
"""

from __future__ import annotations

from typing import Any


def pairs(eqn: Any) -> dict[int, int]:
    """The axes of the array that each have their like among those of the indices."""
    *_, batching, own = eqn.params["dimension_numbers"]
    return dict(zip(batching, own, strict=True))


def spanned(eqn: Any) -> dict[int, int]:
    """The axes of the array that nothing is looked up along, and what they are in the windows."""
    windows, removed, indexed, batching, _ = eqn.params["dimension_numbers"]
    rank = len(eqn.invars[0].aval.shape)
    kept = [i for i in range(rank) if i not in removed and i not in batching]
    return {i: own for i, own in zip(kept, windows, strict=True) if i not in indexed}


def of_indices(eqn: Any, axis: int) -> int:
    """The axis of the windows that an axis of the indices becomes."""
    windows = eqn.params["dimension_numbers"][0]
    rank = len(windows) + len(eqn.invars[1].aval.shape) - 1
    return [i for i in range(rank) if i not in windows][axis]


def with_pair(eqn: Any, axis: int) -> tuple[Any, int]:
    """An axis that was spanned has its like among those of the indices: a new one, at this position."""
    numbers = eqn.params["dimension_numbers"]
    windows, removed, indexed, _, _ = numbers
    moved = spanned(eqn)[axis]
    position = moved - sum(window < moved for window in windows)
    shifted = {i: own + (own >= position) for i, own in pairs(eqn).items()}
    batching, own = zip(*sorted({**shifted, axis: position}.items()), strict=True)
    left = tuple(window for window in windows if window != moved)
    return type(numbers)(left, removed, indexed, batching, own), position
