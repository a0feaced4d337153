"""Strategies that jax_privacy optimizes; `pip install "bk_jax[mechanisms]"` brings it.

Only coefficients are taken from there: sensitivity and noise are computed here, as for any others.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax import checks
from bk_jax._extras import require

Numbers = tuple[float, ...]
REDUCTIONS = {"mean": jnp.mean, "max": jnp.max}
MOST_BUFFERS = 15  # jax_privacy refuses more, whose optimization is not stable


def banded(bands: int, steps: int, error: str) -> Numbers:
    """The first column of the best `C` with few bands, for the error of prefix sums of `steps` steps."""
    length = checks.whole_number("steps", steps, 1)
    if checks.whole_number("bands", bands, 1) > length:
        raise ValueError(f"bands must be at most steps, got bands={bands} for steps={steps}.")
    checks.choice("error", error, tuple(REDUCTIONS))
    module = _module("toeplitz")
    with jax.enable_x64(True):
        found = module.optimize_banded_toeplitz(
            n=length, bands=bands, reduction_fn=REDUCTIONS[error]
        )
    return _tuple(found)


def buffered(
    steps: int, separation: int, max_participations: int | None, max_buffers: int, error: str
) -> tuple[Numbers, Numbers]:
    """Decays and scales of a good sum of geometric series, with as few of them as are worth it."""
    limits = {"min_sep": checks.whole_number("separation", separation, 1)}
    if max_participations is not None:
        limits["max_participations"] = checks.whole_number(
            "max_participations", max_participations, 1
        )
    if checks.whole_number("max_buffers", max_buffers, 1) > MOST_BUFFERS:
        raise ValueError(f"max_buffers must be at most {MOST_BUFFERS}, got {max_buffers}.")
    checks.choice("error", error, tuple(REDUCTIONS))
    length = checks.whole_number("steps", steps, 1)
    module = _module("buffered_toeplitz")
    known: dict[str, Any] = {"max_participations": None} | limits
    with jax.enable_x64(True):
        found = module.optimize(n=length, error=error, max_buffers=max_buffers, **known)
    return _tuple(found.buf_decay), _tuple(found.output_scale)


def _module(name: str) -> Any:
    path = f"jax_privacy.matrix_factorization.{name}"
    return require(path, "jax_privacy", '"bk_jax[mechanisms]"')


def _tuple(values: Any) -> Numbers:
    return tuple(np.asarray(values, np.float64).tolist())
