"""The likely cause of a result that moved too far, from a few more runs."""

from __future__ import annotations

import numpy as np

from bk_jax.audit.neighbours import Neighbours

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


def likely_cause(runs: Neighbours, index: int) -> str:
    """Compares what two examples add to the result together and each by itself."""
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
    return NOT_CLIPPED if _close(both, one + two) else BATCH_CLIPPED


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.linalg.norm(a - b) <= 1e-3 * (np.linalg.norm(a) + np.linalg.norm(b)))
