"""Neighbouring batches: how far one example moves the result, and whether padding does.

All runs use the same key, so noise that does not depend on the data cancels.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from bk_jax.audit.subject import Subject


class Moved(NamedTuple):
    """Two neighbouring batches: what differs, how far apart the results are, and the rounding."""

    what: str
    distance: float
    rounding: float


@dataclasses.dataclass(frozen=True)
class Neighbours:
    """The runs of a subject with one key; the other key shows which part is noise.

    Both are `None` if no key is used.
    """

    subject: Subject
    key: Any
    other_key: Any

    def result(self, real: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """The gradient when the rows marked by `real` are examples."""
        return self.subject.flat(real, self.key, rows)

    def noise(self, real: np.ndarray) -> np.ndarray:
        """What the other key changes."""
        return self.result(real) - self.subject.flat(real, self.other_key)

    @functools.cached_property
    def rounding_unit(self) -> float:
        """The largest relative rounding error of a number in the result."""
        return self.subject.rounding_unit(self.key)

    @functools.cached_property
    def full(self) -> np.ndarray:
        """The result of the whole batch."""
        return self.result(np.ones(self.subject.size, bool))

    @functools.cached_property
    def empty(self) -> np.ndarray:
        """The result without examples."""
        return self.result(np.zeros(self.subject.size, bool))

    def chosen(self, *indices: int) -> np.ndarray:
        """The batch in which the given rows are real and all others are padding."""
        return np.isin(np.arange(self.subject.size), indices)

    def moved(self, what: str, one: np.ndarray, two: np.ndarray) -> Moved:
        """How far apart two results are; rounding errors of a sum add up like a random walk."""
        magnitude = np.linalg.norm(one) + np.linalg.norm(two)
        rounding = 4 * np.sqrt(self.subject.size) * self.rounding_unit * magnitude
        return Moved(what, float(np.linalg.norm(one - two)), float(rounding))

    def without_one(self, index: int) -> Iterator[Moved]:
        """One example removed from, or added to, batches of every size."""
        alone, others = self.result(self.chosen(index)), self.result(~self.chosen(index))
        yield self.moved(f"example {index} removed from the whole batch", self.full, others)
        yield self.moved(f"example {index} added to an empty batch", alone, self.empty)
        other = (index + 1) % self.subject.size
        if other != index:
            both = self.result(self.chosen(index, other))
            yield self.moved(f"example {other} added to example {index} alone", both, alone)

    def replaced(self, index: int) -> Iterator[Moved]:
        """One example exchanged for the next one, in the whole batch and alone."""
        rows = self.exchange(index)
        for name, real in (
            ("in the whole batch", np.ones(self.subject.size, bool)),
            ("alone", self.chosen(index)),
        ):
            what = f"example {index} replaced by example {rows[index]} {name}"
            yield self.moved(what, self.result(real), self.result(real, rows))

    def exchange(self, index: int) -> np.ndarray:
        """The rows of a batch in which the next row takes the place of `index`."""
        rows = np.arange(self.subject.size)
        rows[index] = (index + 1) % self.subject.size
        return rows

    def padding_moves(self, index: int) -> Moved:
        """How far the result moves if a padding row holds another row; it must not move."""
        real = ~self.chosen(index)
        return self.moved(
            f"with row {index} marked as padding, another row in its place",
            self.result(real),
            self.result(real, self.exchange(index)),
        )
