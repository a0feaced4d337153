"""Mechanisms beside independent noise: correlated over steps, on a grid, with adaptive clipping.

    noise = mechanisms.BandedInverse.square_root(bands=8)
    participation = mechanisms.MinSeparation(steps=1000, separation=100)
    private = mechanisms.correlated(grad_fn, noise, participation)

Each says what it stores, and which event of `dp_accounting` a run with it is. docs/mechanisms.md
"""

from bk_jax.mechanisms.adam_bc import adam_bc
from bk_jax.mechanisms.adaptive_clipping import AdaptiveClipping
from bk_jax.mechanisms.grid import GridRelease, on_grid
from bk_jax.mechanisms.noise import (
    BandedInverse,
    BandedToeplitz,
    BufferedToeplitz,
    CorrelatedNoise,
)
from bk_jax.mechanisms.participation import (
    CyclicPoisson,
    FixedEpochs,
    MinSeparation,
    Participation,
    SingleParticipation,
)
from bk_jax.mechanisms.release import CorrelatedRelease, correlated, recent_keys

__all__ = [
    "AdaptiveClipping",
    "BandedInverse",
    "BandedToeplitz",
    "BufferedToeplitz",
    "CorrelatedNoise",
    "CorrelatedRelease",
    "CyclicPoisson",
    "FixedEpochs",
    "GridRelease",
    "MinSeparation",
    "Participation",
    "SingleParticipation",
    "adam_bc",
    "correlated",
    "on_grid",
    "recent_keys",
]
