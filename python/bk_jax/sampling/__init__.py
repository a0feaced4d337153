"""Sampling: batches at one compiled shape, and units of several examples.

    sampler = sampling.PoissonSampler.of(plan)
    loader = sampling.Loader(data, sampler, physical_batch_size=64)
    for batch in loader.physical_batches(step.sampling_key): ...

The accounting of sampled batches holds only for the sampling that it assumes. Shuffled batches of a
fixed size are not Poisson samples, whatever their size.
"""

from bk_jax.sampling.accumulate import Accumulated, BatchStats, accumulated
from bk_jax.sampling.batches import Batch, PaddedCollate, stack
from bk_jax.sampling.dealt import BallsInBins, CyclicPoissonSampler
from bk_jax.sampling.fixed_size import FixedSizeSampler
from bk_jax.sampling.hosts import Hosts, spread
from bk_jax.sampling.loader import Loader
from bk_jax.sampling.min_separation import MinSeparationSampler
from bk_jax.sampling.owners import bound_owners
from bk_jax.sampling.planned import sampler_of
from bk_jax.sampling.poisson import PoissonSampler
from bk_jax.sampling.sampler import Sampler
from bk_jax.sampling.units import Units, group_by_user, unit_loss

__all__ = [
    "Accumulated",
    "BallsInBins",
    "Batch",
    "BatchStats",
    "CyclicPoissonSampler",
    "FixedSizeSampler",
    "Hosts",
    "Loader",
    "MinSeparationSampler",
    "PaddedCollate",
    "PoissonSampler",
    "Sampler",
    "Units",
    "accumulated",
    "bound_owners",
    "group_by_user",
    "sampler_of",
    "spread",
    "stack",
    "unit_loss",
]
