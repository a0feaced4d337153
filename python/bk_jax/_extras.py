"""Packages that the core does without: imported when used, with help when they are missing."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str, package: str, install: str = '"bk_jax[train]"') -> Any:
    """Imports `module`, or says what to install: by default the extra of bk_jax that brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"this needs the package {package}: pip install {install} brings it.", name=module
        ) from error
