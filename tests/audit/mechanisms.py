"""A private gradient written out in NumPy, and its broken variants.

The gradient of example `x` is 0.5 for the scalar `b`, `x` for `v` and `2 x` for `w`. The bound of all
variants is declared as CLIP / EXPECTED, the noise as SIGMA * CLIP / EXPECTED.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

CLIP, EXPECTED, SIGMA = 1.5, 4.0, 2.0
BOUND, STDDEV = CLIP / EXPECTED, SIGMA * CLIP / EXPECTED
PARAMS = {"b": np.float32(0), "v": np.zeros(3, np.float32), "w": np.zeros(3, np.float32)}
BATCH = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
DECLARED = {"bound": BOUND, "noise_stddev": STDDEV}

Gradients = dict[str, np.ndarray]


def per_example(x: np.ndarray) -> np.ndarray:
    """Gradients `[B, 7]`: b, v, w."""
    return np.concatenate([np.full((len(x), 1), 0.5), x, 2 * x], axis=1)


def clip(gradients: np.ndarray, norm: float = CLIP) -> np.ndarray:
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    return gradients * np.minimum(1, norm / np.maximum(norms, 1e-12))


def generator(key: Any) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def normal(key: Any, scale: float = SIGMA * CLIP) -> np.ndarray:
    return scale * generator(key).normal(size=7)


def as_tree(vector: np.ndarray) -> tuple[float, Gradients]:
    vector = vector.astype(np.float32)
    return 0.0, {"b": vector[0], "v": vector[1:4], "w": vector[4:]}


def real_rows(x: np.ndarray, is_padding_example: np.ndarray) -> np.ndarray:
    return x[~np.asarray(is_padding_example)]


def correct(params, x, key, is_padding_example):
    rows = real_rows(x, is_padding_example)
    return as_tree((clip(per_example(rows)).sum(0) + normal(key)) / EXPECTED)


def without_noise(params, x, is_padding_example):
    return as_tree(clip(per_example(real_rows(x, is_padding_example))).sum(0) / EXPECTED)


# --- broken ---


def mean_instead_of_sum(params, x, key, is_padding_example):
    rows = real_rows(x, is_padding_example)
    return as_tree((clip(per_example(rows)).sum(0) + normal(key)) / max(len(rows), 1))


def mean_that_fails_when_empty(params, x, key, is_padding_example):
    rows = real_rows(x, is_padding_example)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = clip(per_example(rows)).sum(0) / np.float64(len(rows))
    return as_tree(mean + normal(key) / EXPECTED)


def mean_before_the_noise(params, x, key, is_padding_example):
    rows = real_rows(x, is_padding_example)
    return as_tree(clip(per_example(rows)).sum(0) / max(len(rows), 1) + normal(key) / EXPECTED)


def not_clipped(params, x, key, is_padding_example):
    rows = real_rows(10 * x, is_padding_example)
    return as_tree((per_example(rows).sum(0) + normal(key)) / EXPECTED)


def batch_clipped(params, x, key, is_padding_example):
    total = per_example(real_rows(x, is_padding_example)).sum(0, keepdims=True)
    return as_tree((clip(100 * total)[0] + normal(key)) / EXPECTED)


def dropped_padding_mask(params, x, key, is_padding_example):
    return as_tree((clip(per_example(x)).sum(0) + normal(key)) / EXPECTED)


def noise_before_clipping(params, x, key, is_padding_example):
    rows = per_example(real_rows(x, is_padding_example))
    return as_tree(clip(rows + normal(key)).sum(0) / EXPECTED)


def noise_that_grows(params, x, key, is_padding_example):
    """Noise of the right size, but more of it in larger batches."""
    rows = real_rows(x, is_padding_example)
    growing = np.sqrt(len(rows) / len(x))
    return as_tree((clip(per_example(rows)).sum(0) + growing * normal(key)) / EXPECTED)


def noise_without_the_clip_norm(params, x, key, is_padding_example):
    rows = real_rows(x, is_padding_example)
    return as_tree((clip(per_example(rows)).sum(0) + normal(key, SIGMA)) / EXPECTED)


def noise_not_divided(params, x, key, is_padding_example):
    rows = real_rows(x, is_padding_example)
    return as_tree(clip(per_example(rows)).sum(0) / EXPECTED + normal(key))


FIXED_KEY = jax.random.key(0)


def key_made_inside(params, x, key, is_padding_example):
    return correct(params, x, FIXED_KEY, is_padding_example)


def same_noise_for_two_parameters(params, x, key, is_padding_example):
    rows = real_rows(x, is_padding_example)
    drawn = normal(key)
    drawn[4:] = drawn[1:4]
    return as_tree((clip(per_example(rows)).sum(0) + drawn) / EXPECTED)


def one_number_for_a_parameter(params, x, key, is_padding_example):
    rows = real_rows(x, is_padding_example)
    drawn = normal(key)
    drawn[1:4] = drawn[1]
    return as_tree((clip(per_example(rows)).sum(0) + drawn) / EXPECTED)


def parameter_without_noise(params, x, key, is_padding_example):
    rows = real_rows(x, is_padding_example)
    drawn = normal(key) * np.float64([1, 1, 1, 1, 0, 0, 0])
    return as_tree((clip(per_example(rows)).sum(0) + drawn) / EXPECTED)


_calls = np.random.default_rng(0)


def not_from_the_key(params, x, key, is_padding_example):
    rows = real_rows(x, is_padding_example)
    small = 1e-6 * _calls.normal(size=7)
    return as_tree((clip(per_example(rows)).sum(0) + normal(key) + small) / EXPECTED)


# What the audit must say of each.
BROKEN: dict[Callable[..., Any], str] = {
    mean_instead_of_sum: r"moves the result by .*a mean instead of a sum",
    mean_before_the_noise: r"moves the result.*a mean instead of a sum",
    mean_that_fails_when_empty: r"0 real examples is not finite.*a division by the number",
    not_clipped: r"more than the declared bound.*is not clipped, or not to this norm",
    batch_clipped: r"more than the declared bound.*the gradient of the batch is clipped",
    dropped_padding_mask: r"padding rows contribute: with row 0.*is_padding_example is not handed on",
    noise_before_clipping: r"noise of parameter 'b' depends on the data.*before clipping",
    noise_that_grows: r"more than the declared bound.*the noise depends on the data",
    noise_without_the_clip_norm: r"all parameters has standard deviation .*hides less",
    noise_not_divided: r"all parameters has standard deviation .*more than needed",
    key_made_inside: r"different keys \(0 and 1\) give the same result.*made inside",
    same_noise_for_two_parameters: r"number of 'v' and the \w+ number of 'w' get the same noise",
    one_number_for_a_parameter: r"first number of 'v' and the last number of 'v' get the same",
    parameter_without_noise: r"parameters without noise: w\.",
    not_from_the_key: r"the same key and data give different results",
}
