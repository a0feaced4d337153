"""Checks of numbers and names: each error says what was expected and what it got."""

from __future__ import annotations

import math
import operator
from typing import Any


def whole_number(name: str, value: Any, least: int) -> int:
    """`value` as an int of at least `least`."""
    try:
        number = operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} must be a whole number, got {value!r}.") from error
    if isinstance(value, bool) or number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    return number


def positive(name: str, value: Any) -> float:
    """`value` as a finite float above 0."""
    try:
        number = float(operator.mul(value, 1.0))
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a number, got {value!r}.") from error
    if isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be finite and above 0, got {number}.")
    return number


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """`value` must be one of the names."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}.")
