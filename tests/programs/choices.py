"""Who decides what a random program is like: Hypothesis, or a seed."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st


class Drawn:
    """Choices that Hypothesis makes: it shrinks what fails, and varies what it has seen."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw

    def one_of(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def permuted(self, items: Any) -> list[Any]:
        return list(self.draw(st.permutations(list(items))))


class Seeded:
    """Choices by a random number generator: independent ones for each seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one_of(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def permuted(self, items: Any) -> list[Any]:
        return self.random.sample(list(items), len(items))
