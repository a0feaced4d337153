"""Noise: fresh for each key, independent between parameters, of the declared size, data-blind."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax.audit.subject import AuditError, Subject

STANDARD_ERRORS = 6  # the chance of a false alarm is about 1e-9
SAME = 0.95  # two columns of 32 independent normals correlate this much in 1 of 1e15 cases


def check_noise(subject: Subject, keys: Sequence[Any], stddev: float) -> float:
    """Raises if the noise is not what was declared; returns its standard deviation."""
    _check_keys_differ(keys)
    everyone = np.ones(subject.size, bool)
    results = [subject.leaves(everyone, key) for key in keys]
    _check_repeats(subject, keys[0], results[0])
    _check_depends_on_key(results)
    _check_blind_to_data(subject, keys, results, stddev)
    paths = subject.paths()
    noise = [np.stack(r).reshape(len(keys), -1) for r in zip(*results, strict=True)]
    drawn = {
        p: z - z.mean(0) for p, z in zip(paths, noise, strict=True) if z.size and _is_noised(z)
    }
    _check_every_parameter(subject, drawn)
    _check_independent(drawn)
    return _check_size(drawn, stddev, len(keys))


def _check_keys_differ(keys: Sequence[Any]) -> None:
    data = [np.asarray(jax.random.key_data(jnp.asarray(key))).tobytes() for key in keys]
    for one, two in itertools.combinations(range(len(data)), 2):
        if data[one] == data[two]:
            raise AuditError(
                f"keys {one} and {two} are the same key: two steps would add the same noise, which "
                "cancels in the difference of their results. Split a new key off for each step."
            )


def _check_repeats(subject: Subject, key: Any, first: list[np.ndarray]) -> None:
    again = subject.leaves(np.ones(subject.size, bool), key)
    if not all(np.array_equal(a, b) for a, b in zip(first, again, strict=True)):
        raise AuditError(
            "the same key and data give different results, so neighbouring batches cannot be "
            "compared. Draw all randomness from the key."
        )


def _check_depends_on_key(results: Sequence[list[np.ndarray]]) -> None:
    for one, two in itertools.combinations(range(len(results)), 2):
        if all(np.array_equal(a, b) for a, b in zip(results[one], results[two], strict=True)):
            raise AuditError(
                f"different keys ({one} and {two}) give the same result: there is no noise, or it is "
                "the same in every step. Likely cause: a key that is made inside the function."
            )


def _check_blind_to_data(
    subject: Subject, keys: Sequence[Any], results: Sequence[list[np.ndarray]], stddev: float
) -> None:
    """From one key to another, the result must change the same way with examples and without."""
    nobody = np.zeros(subject.size, bool)
    without = [subject.leaves(nobody, key) for key in keys[:2]]
    unit = subject.rounding_unit(keys[0])
    for path, a, b, c, d in zip(subject.paths(), *results[:2], *without, strict=True):
        largest = max((float(np.max(np.abs(x), initial=0)) for x in (a, b, c, d)), default=0.0)
        rounding = 0.01 * stddev + 16 * unit * largest
        difference = float(np.max(np.abs((a - b) - (c - d)), initial=0))
        if not difference <= rounding:
            raise AuditError(
                f"the noise of parameter {path!r} depends on the data: from one key to another the "
                f"result changes otherwise with examples than without, by up to {difference:.4g}. "
                "Likely cause: noise is added before clipping, or the noisy sum is divided by the "
                "number of real examples. Clip, sum, add noise, divide by a constant."
            )


def _is_noised(values: np.ndarray) -> bool:
    return bool(np.any(values != values[0]))


def _check_every_parameter(subject: Subject, drawn: dict[str, np.ndarray]) -> None:
    with_leaves = zip(subject.paths(), jax.tree_util.tree_leaves(subject.params), strict=True)
    missing = [
        path
        for path, leaf in with_leaves
        if path not in drawn and np.size(leaf) and jnp.issubdtype(leaf.dtype, np.floating)
    ]
    if missing:
        raise AuditError(
            f"parameters without noise: {', '.join(missing)}. Likely cause: they are left out of the "
            "tree that noise is added to."
        )


def _check_independent(drawn: dict[str, np.ndarray]) -> None:
    """The first and last numbers of the parameters must not be correlated with each other."""
    columns = [(p, w, z[:, i]) for p, z in drawn.items() for w, i in _ends(z)]
    if len(columns) < 2:
        return
    correlation = np.corrcoef(np.stack([values for _, _, values in columns]))
    for one, two in itertools.combinations(range(len(columns)), 2):
        if abs(correlation[one, two]) > SAME:
            (path, which, _), (other, other_which, _) = columns[one], columns[two]
            raise AuditError(
                f"the {which} number of {path!r} and the {other_which} number of {other!r} get the same "
                "noise. Likely cause: one key for several draws. Split the key, one for each parameter."
            )


def _ends(values: np.ndarray) -> list[tuple[str, int]]:
    return [("first", 0), ("last", -1)] if values.shape[1] > 1 else [("first", 0)]


def _check_size(drawn: dict[str, np.ndarray], stddev: float, num_keys: int) -> float:
    squares = {path: float(np.sum(np.square(z))) for path, z in drawn.items()}
    degrees = {path: (num_keys - 1) * z.shape[1] for path, z in drawn.items()}
    whole = {"all parameters": (sum(squares.values()), sum(degrees.values()))}
    each = {f"parameter {path!r}": (squares[path], degrees[path]) for path in drawn}
    for what, (total, count) in (whole | each).items():
        measured = math.sqrt(total / count)
        tolerance = STANDARD_ERRORS / math.sqrt(2 * count)
        if abs(measured / stddev - 1) > tolerance:
            raise AuditError(_size_message(what, measured, stddev))
    total, count = whole["all parameters"]
    return math.sqrt(total / count)


def _size_message(what: str, measured: float, stddev: float) -> str:
    effect = (
        "it hides less than the accountant counts"
        if measured < stddev
        else "it is more than needed, or the declared size is not that of this function"
    )
    return (
        f"the noise of {what} has standard deviation {measured:.4g} where {stddev:.4g} is declared "
        f"({measured / stddev:.3g} times): {effect}. The right one is noise_multiplier * l2_clip_norm / "
        "normalize_by. Likely cause: a missing or doubled factor, or noise added before clipping."
    )
