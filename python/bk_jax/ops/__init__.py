"""The arithmetic of private training as JAX functions.

Each operation has a module of its name. It is a C++ custom call where the native library is
registered, and a pure-JAX twin with the same signature elsewhere. All of them take arrays of a
whole batch; none is differentiable.
"""

from bk_jax.ops.after import after
from bk_jax.ops.banded_gaussian import banded_gaussian
from bk_jax.ops.chacha import chacha_bits
from bk_jax.ops.clip_factor import clip_factor
from bk_jax.ops.clipped_gemm import clipped_gemm
from bk_jax.ops.clipped_gemms import clipped_gemms
from bk_jax.ops.clipped_scatter import clipped_scatter
from bk_jax.ops.conv_grad import conv_grad
from bk_jax.ops.conv_norm import conv_norm
from bk_jax.ops.conv_patches import Window, conv_patches, conv_rows
from bk_jax.ops.conv_sum import conv_sum
from bk_jax.ops.dense_patches import dense_patches, kernel_of_rows
from bk_jax.ops.direct_norm import direct_norm
from bk_jax.ops.discrete_gaussian import discrete_gaussian, discrete_gaussians
from bk_jax.ops.embedding_norm import embedding_norm
from bk_jax.ops.gaussian import gaussian
from bk_jax.ops.gaussians import gaussians
from bk_jax.ops.ghost_norm import ghost_norm
from bk_jax.ops.ghost_norms import ghost_norms
from bk_jax.ops.noisy_update import noisy_update
from bk_jax.ops.per_sample_grad import per_sample_grad
from bk_jax.ops.sum_of_squares import sum_of_squares
from bk_jax.ops.tied_cross import tied_cross
from bk_jax.ops.weighted_sum import weighted_sum, weighted_sums

__all__ = [
    "Window",
    "after",
    "banded_gaussian",
    "chacha_bits",
    "clip_factor",
    "clipped_gemm",
    "clipped_gemms",
    "clipped_scatter",
    "conv_grad",
    "conv_norm",
    "conv_patches",
    "conv_rows",
    "conv_sum",
    "dense_patches",
    "direct_norm",
    "discrete_gaussian",
    "discrete_gaussians",
    "embedding_norm",
    "gaussian",
    "gaussians",
    "ghost_norm",
    "ghost_norms",
    "kernel_of_rows",
    "noisy_update",
    "per_sample_grad",
    "sum_of_squares",
    "tied_cross",
    "weighted_sum",
    "weighted_sums",
]
