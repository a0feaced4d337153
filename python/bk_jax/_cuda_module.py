"""Where the module for GPUs is: in a wheel of its own for each major version of CUDA, as JAX's are.

`bk_jax_cuda13` plugs into this package by being there, as `jax_cuda13_plugin` does into JAX. If there
are several, the one of JAX's own plugin is used. A module in this package itself comes first: that of a
checkout, or of a wheel that holds both.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, NamedTuple

PLUGINS = ("bk_jax_cuda13", "bk_jax_cuda12")
BUILD = (
    "Install the wheel for your CUDA (`bk_jax_cuda13`), or in a checkout, with a CUDA toolkit: "
    "`python tools/build_native.py --cuda --into python/bk_jax`."
)


class Found(NamedTuple):
    """The module, and the package that it came in; or what is wrong."""

    module: Any | None
    package: str
    problem: str


def find() -> Found:
    """The first package that is installed decides, also if its module is of no use."""
    for package in ("bk_jax", *_by_jax_plugin()):
        if importlib.util.find_spec(package) is None:
            continue
        if importlib.util.find_spec(f"{package}._cuda") is not None:
            return _load(package)
    return Found(None, "", f"no package holds the module for GPUs. {BUILD}")


def _by_jax_plugin() -> list[str]:
    """Our plugins, those first for whose CUDA JAX has one."""

    def is_foreign(package: str) -> bool:
        return importlib.util.find_spec(f"{package.removeprefix('bk_')}_plugin") is None

    return sorted(PLUGINS, key=is_foreign)


def _load(package: str) -> Found:
    import bk_jax

    version = importlib.import_module(package).__version__
    if version != bk_jax.__version__:
        wanted = f"{package}=={bk_jax.__version__}"
        problem = f"{package} is version {version}, and this is bk_jax {bk_jax.__version__}: "
        return Found(None, package, f"{problem}`pip install {wanted}`.")
    try:
        return Found(importlib.import_module(f"{package}._cuda"), package, "")
    except ImportError as error:
        return Found(None, package, f"{package}._cuda could not be imported ({error}). {BUILD}")
