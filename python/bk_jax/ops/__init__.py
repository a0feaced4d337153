"""The arithmetic of private training as JAX functions.

Each operation is a C++ custom call where the native library is registered and a pure-JAX twin with
the same signature elsewhere. All of them take arrays of a whole batch; none is differentiable.
"""

from bk_jax.ops.chacha import chacha_bits
from bk_jax.ops.clip_factor import clip_factor
from bk_jax.ops.clipped_gemm import clipped_gemm
from bk_jax.ops.conv import conv_grad, conv_norm, conv_sum
from bk_jax.ops.embedding import clipped_scatter, embedding_norm, tied_cross
from bk_jax.ops.gaussian import gaussian
from bk_jax.ops.ghost_norm import ghost_norm
from bk_jax.ops.instantiate import direct_norm, per_sample_grad
from bk_jax.ops.patches import Window, conv_patches, conv_rows
from bk_jax.ops.sums import sum_of_squares, weighted_sum

__all__ = [
    "Window",
    "chacha_bits",
    "clip_factor",
    "clipped_gemm",
    "clipped_scatter",
    "conv_grad",
    "conv_norm",
    "conv_patches",
    "conv_rows",
    "conv_sum",
    "direct_norm",
    "embedding_norm",
    "gaussian",
    "ghost_norm",
    "per_sample_grad",
    "sum_of_squares",
    "tied_cross",
    "weighted_sum",
]
