"""Differentially private training in JAX at about the price of ordinary training.

`bk_jax.dp_value_and_grad(loss_fn)` takes the place of `jax.value_and_grad(loss_fn)`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bk_jax import ops, optimizers, random
    from bk_jax._diagnose import diagnose
    from bk_jax.api import DPValueAndGrad, Stats, clipped_value_and_grad, dp_value_and_grad
    from bk_jax.exporting import export_step, register_custom_calls
    from bk_jax.interop import equinox as equinox
    from bk_jax.interop import keras as keras
    from bk_jax.interop import nnx as nnx
    from bk_jax.overhead import calibrate, tax
    from bk_jax.program.shared_data import BatchSizedConstantWarning
    from bk_jax.updates import private_update

__version__ = "0.1.0"

__all__ = [
    "BatchSizedConstantWarning",
    "DPValueAndGrad",
    "Stats",
    "__version__",
    "calibrate",
    "clipped_value_and_grad",
    "diagnose",
    "dp_value_and_grad",
    "export_step",
    "ops",
    "optimizers",
    "private_update",
    "random",
    "register_custom_calls",
    "tax",
]

# Where the public names stand. No module among them has the name of a function in it: importing that
# module would put it in the function's place.
_FUNCTIONS = {
    "BatchSizedConstantWarning": "program.shared_data",
    "DPValueAndGrad": "grad_fn",
    "Stats": "api",
    "calibrate": "overhead",
    "clipped_value_and_grad": "api",
    "diagnose": "_diagnose",
    "dp_value_and_grad": "api",
    "export_step": "exporting",
    "private_update": "updates",
    "register_custom_calls": "exporting",
    "tax": "overhead",
}
# Those of other libraries are not in `__all__`: `import *` must do without the libraries.
_MODULES = {
    "equinox": "interop.equinox",
    "keras": "interop.keras",
    "nnx": "interop.nnx",
    "ops": "ops",
    "optimizers": "optimizers",
    "random": "random",
}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are asked for: `bk-hlo` does without JAX."""
    if name in _MODULES:
        return importlib.import_module(f"bk_jax.{_MODULES[name]}")
    if name not in _FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"bk_jax.{_FUNCTIONS[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
