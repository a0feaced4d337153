"""Numbers as the paper prints them, beside the ones that follow from the layers.

Printed numbers stay text, because the digits say how exact they are: `11.7M` is anything that rounds to
it. Where ours does not round to it, configs/paper/differences.toml must say so, and why.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from functools import cache
from typing import Any

from benchmarks.paper.complexity.layers import CONFIGS

FOLDER = CONFIGS / "paper"
NUMBER = re.compile(r"(\d+)(?:\.(\d+))?(?:e(\d+))?(M|%)?")


@dataclasses.dataclass(frozen=True)
class Cell:
    """One cell of a table: what is printed, what we compute."""

    table: int
    row: str
    column: str
    printed: str
    computed: float

    @property
    def agrees(self) -> bool:
        """Whether the computed value rounds to the printed one."""
        return rounds_to(self.computed, self.printed)

    @property
    def deviation(self) -> float:
        """How far the computed value is from the printed one, relative to that."""
        number, _ = parse(self.printed)
        return self.computed / number - 1 if number else self.computed

    @property
    def key(self) -> tuple[int, str, str]:
        """Where it stands."""
        return self.table, self.row, self.column


@dataclasses.dataclass(frozen=True)
class Difference:
    """Cells whose printed value is not what the layers give: by a misprint, or another accounting."""

    table: int
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    kind: str
    why: str
    right: str | None = None

    @property
    def keys(self) -> list[tuple[int, str, str]]:
        """The cells."""
        return [(self.table, row, column) for row in self.rows for column in self.columns]


def parse(text: str) -> tuple[float, float]:
    """A printed number and the size of its last digit.

    >>> parse("11.7M")
    (11700000.0, 100000.0)
    """
    match = NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not a number as the paper prints it, such as 11.7M or 5.3e9."
        )
    whole, decimals, exponent, unit = match.groups()
    digits = len(decimals or "")
    scale = 10 ** (int(exponent or 0) + (6 if unit == "M" else 0))
    return int(whole + (decimals or "")) * scale / 10**digits, scale / 10**digits


def rounds_to(value: float, text: str) -> bool:
    """Whether a number, rounded to the digits that are printed, is the printed one."""
    number, step = parse(text)
    return abs(value - number) <= step / 2 * (1 + 1e-9)


@cache
def read(name: str) -> dict[str, Any]:
    """One file of configs/paper."""
    return tomllib.loads((FOLDER / f"{name}.toml").read_text())


def differences() -> list[Difference]:
    """All cells that are known to differ."""
    rows = read("differences")["difference"]
    return [
        Difference(**{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()})
        for row in rows
    ]


def known() -> dict[tuple[int, str, str], Difference]:
    """The same, by cell."""
    return {key: difference for difference in differences() for key in difference.keys}
