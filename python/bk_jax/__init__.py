"""Differentially private training for JAX at the price of ordinary training.

`bk_jax.dp_value_and_grad(loss_fn)` stands where `jax.value_and_grad(loss_fn)` stood.
"""

from bk_jax import ops, random
from bk_jax.api import DPValueAndGrad, Stats, clipped_value_and_grad, dp_value_and_grad
from bk_jax.diagnose import diagnose

__version__ = "0.1.0"

__all__ = [
    "DPValueAndGrad",
    "Stats",
    "__version__",
    "clipped_value_and_grad",
    "diagnose",
    "dp_value_and_grad",
    "ops",
    "random",
]
