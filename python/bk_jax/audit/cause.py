"""The likely cause of a result that moved too far, found with a few more runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from bk_jax.audit.neighbours import Moved, Neighbours

NOT_CLIPPED = (
    "Likely cause: the gradient of an example is not clipped, or not to this norm; or the declared "
    "bound is that of another l2_clip_norm or normalize_by."
)
MEAN = (
    "Likely cause: a mean instead of a sum. The result is divided by the number of real examples, which "
    "is private. Divide by a constant, such as the expected batch size."
)
NOISE = (
    "Likely cause: the noise depends on the data, such as on the number of real examples. Clip, sum, "
    "add noise, divide by a constant."
)
BATCH_CLIPPED = (
    "Likely cause: the gradient of the batch is clipped, not that of each example: what two examples "
    "add is neither the sum nor the mean of what each adds. Clip before the sum."
)
MIXED = (
    "Likely cause: examples are mixed before clipping: the gradient of one depends on the data of "
    "others, by a statistic of the batch (BatchNorm, a mean over examples), a custom_vmap rule or a "
    "callback that sees the whole batch. Compute the loss of each example from that example alone."
)
NOT_HANDED_ON = (
    "Likely cause: is_padding_example is not handed on, or the rows are not left out of the sum."
)


def shared_cause(names: Sequence[str]) -> str:
    """Names keyword arguments that all examples see."""
    return (
        f"Likely cause: {', '.join(names)} has one row for each example but is no part of the batch: "
        "every example sees the rows of all. Make it a part of the batch (batch_argnums)."
    )


def padding_cause(runs: Neighbours, index: int) -> str:
    """Why the data of a padding row matter: directly as an example, or through the others."""
    if cause := _shared(runs, lambda alone: alone.padding_moves(index)):
        return cause
    nobody = np.zeros(runs.subject.size, bool)
    moved = runs.moved("", runs.result(nobody), runs.result(nobody, runs.exchange(index)))
    return NOT_HANDED_ON if moved.distance > moved.rounding else MIXED


def _shared(runs: Neighbours, moves: Callable[[Neighbours], Moved]) -> str:
    """The cause, if it lies in the keyword arguments: it is gone when they stay as they are."""
    names = runs.subject.cut_keywords
    if not names:
        return ""
    still = moves(dataclasses.replace(runs, subject=runs.subject.with_shared(names)))
    return "" if still.distance > still.rounding else shared_cause(names)


def likely_cause(runs: Neighbours, index: int) -> str:
    """Compares what two examples add to the result together with what each adds alone."""
    if runs.subject.cut_keywords:
        return shared_cause(runs.subject.cut_keywords)
    if runs.subject.size < 2:
        return NOT_CLIPPED
    other = (index + 1) % runs.subject.size
    noise_alone = runs.noise(runs.chosen(index))
    noise_of_both = runs.noise(runs.chosen(index, other))
    if not _close(noise_alone, noise_of_both):
        return MEAN if _close(noise_alone, 2 * noise_of_both) else NOISE
    one, two = (runs.result(runs.chosen(i)) - runs.empty for i in (index, other))
    both = runs.result(runs.chosen(index, other)) - runs.empty
    if _close(both, (one + two) / 2):
        return MEAN
    if _close(both, one + two):
        return NOT_CLIPPED
    largest = max(np.linalg.norm(one), np.linalg.norm(two))
    return BATCH_CLIPPED if np.linalg.norm(both) <= largest * (1 + 1e-3) else MIXED


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.linalg.norm(a - b) <= 1e-3 * (np.linalg.norm(a) + np.linalg.norm(b)))
