"""`bk_jax.diagnose()`: what is installed, what is in use, and what to do if something is missing."""

from __future__ import annotations

import platform
import sys
from typing import Any

import jax
import jaxlib.version
import numpy as np

from bk_jax import _native
from bk_jax.planning.machine_rates import current_rates


def diagnose(file: Any = None) -> None:
    """Prints versions, devices and the state of the native library.

    >>> diagnose()  # doctest: +ELLIPSIS
    bk_jax ...
    """
    print(report(), file=file or sys.stdout)


def report() -> str:
    """The text of `diagnose`."""
    import bk_jax

    rows = [
        ("bk_jax", bk_jax.__version__),
        (
            "jax, jaxlib, numpy",
            f"{jax.__version__}, {jaxlib.version.__version__}, {np.__version__}",
        ),
        ("python", f"{platform.python_version()} on {platform.machine()}"),
        ("devices", ", ".join(str(device) for device in jax.devices())),
        *_native_rows(_native.library()),
        ("on GPUs", _cuda_text(_native.cuda_library())),
        ("rates", current_rates().describe()),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _native_rows(library: _native.Library) -> list[tuple[str, str]]:
    if library.module is None:
        return [
            ("native library", f"not in use: {library.problem}"),
            ("custom calls", "none: every operation runs as pure JAX (same results, slower)"),
        ]
    module = library.module
    isa = f"{module.active_isa()} (CPU has {', '.join(module.supported_isas())})"
    note = module.isa_note()
    return [
        ("native library", f"FFI API {'.'.join(map(str, module.ffi_api_version()))}"),
        ("custom calls", ", ".join(f"{name} (cpu)" for name in library.targets)),
        ("instruction set", f"{isa}; {note}" if note else isa),
    ]


def _cuda_text(library: _native.Library) -> str:
    """One line about the calls for GPUs."""
    if library.module is None:
        return f"pure JAX: {library.problem}"
    calls = (
        f"{len(library.targets)} of {len({*_native.TARGETS, *_native.ON_GPUS_ALONE})} custom calls "
        f"are native; {library.note}"
    )
    return f"{calls}; no device: {library.problem}" if library.problem else calls
