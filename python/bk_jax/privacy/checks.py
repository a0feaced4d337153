"""Checks of a privacy plan: each error says what was expected, what it got, and why."""

from __future__ import annotations

from typing import Any

from bk_jax.checks import choice, positive, whole_number
from bk_jax.mechanisms import AdaptiveClipping

__all__ = [
    "ACCOUNTANTS",
    "adaptive",
    "batch_size",
    "choice",
    "delta",
    "max_batch_size",
    "positive",
    "supported",
    "whole_number",
]

ACCOUNTANTS = ("pld", "rdp", "rdp_whole")


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


def supported(accountant: str, relation: str, truncated: bool) -> None:
    """Renyi accounting covers Poisson batches of any size, and records added or removed."""
    if accountant == "pld":
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


def adaptive(clip: Any, expected: float, noise_multiplier: float) -> None:
    """Adaptive clipping must be made for the plan's batches, and leave budget for the gradient."""
    if clip is None:
        return
    if not isinstance(clip, AdaptiveClipping):
        raise TypeError(
            "adaptive must be a bk_jax.mechanisms.AdaptiveClipping, such as AdaptiveClipping("
            f"batch_size={expected:g}), got {clip!r}."
        )
    if clip.batch_size != expected:
        raise ValueError(
            f"adaptive clipping was made for batch_size={clip.batch_size:g}, but the plan has "
            f"{expected:g}: pass AdaptiveClipping(batch_size={expected:g}, ...)."
        )
    clip.split(noise_multiplier)  # an error if nothing is left
