"""Checks of a privacy plan: each error says what was expected, what it got, and why."""

from __future__ import annotations

import math
import operator
from typing import Any

ACCOUNTANTS = ("pld", "rdp")


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


def delta(value: Any, num_examples: int) -> float:
    """Delta must be below 1/n."""
    number = positive("delta", value)
    if number >= 1 / num_examples:
        raise ValueError(
            f"delta must be below 1 / num_examples = {1 / num_examples:.3g}, got {number:.3g}: "
            "publishing one whole record at random has that delta and epsilon 0. A tenth of it "
            "or less is usual."
        )
    return number


def batch_size(value: Any, num_examples: int) -> float:
    """The expected batch must not exceed the data set."""
    number = positive("batch_size", value)
    if number > num_examples:
        raise ValueError(
            f"batch_size {value} exceeds num_examples {num_examples}: the chance to be sampled, "
            "batch_size / num_examples, would be above 1."
        )
    return number


def max_batch_size(value: Any, expected: float) -> int:
    """A batch must have room for its expected size."""
    number = whole_number("max_batch_size", value, 1)
    if number < expected:
        raise ValueError(
            f"max_batch_size {number} is below the expected batch_size {expected:g}: most batches would "
            'be cut. Take a larger one, or max_batch_size="auto".'
        )
    return number


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """`value` must be one of the names."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}.")


def supported(accountant: str, relation: str, truncated: bool) -> None:
    """Renyi accounting covers Poisson batches of any size, and records added or removed."""
    if accountant != "rdp":
        return
    if truncated:
        raise ValueError(
            "dp_accounting has no Renyi analysis of truncated Poisson batches. Use accountant='pld', or "
            "leave max_batch_size out and cut batches into physical ones (bk_jax.sampling)."
        )
    if relation == "replace_one":
        raise ValueError(
            "dp_accounting has no Renyi analysis of Poisson batches for neighboring_relation="
            "'replace_one'. Use accountant='pld'."
        )
