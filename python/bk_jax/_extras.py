"""Packages that only a training run needs: imported when used, with help when they are missing."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str, package: str) -> Any:
    """Imports `module`, or says which extra of bk_jax brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f'this needs the package {package}: pip install "bk_jax[train]" brings it.', name=module
        ) from error
