"""Machine rates: those of this machine, as a calibration stored them, or defaults.

A calibration is a file of JSON in the user's cache, one for each CPU or kind of GPU, version of bk_jax
and version of jaxlib: another one would be wrong.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
import tempfile
from pathlib import Path

import jaxlib.version

from bk_jax import _native
from bk_jax.planning.default_rates import AVX2, AVX512, nominal_rates
from bk_jax.planning.rates import Rates, from_json
from bk_jax.planning.target import gpu_kind


def cpu_name() -> str:
    """As the operating system calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return found[0] if found else platform.processor() or platform.machine()


def cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def path(gpu: str | None = None) -> Path:
    """The file for this CPU, or that kind of GPU, and these versions, in the user's cache."""
    import bk_jax

    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    machine = (cpu_name(), f"{cores()} cores") if gpu is None else (gpu,)
    parts = (*machine, bk_jax.__version__, jaxlib.version.__version__)
    name = "_".join(re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-") for part in parts)
    return Path(cache) / "bk_jax" / f"rates_{name}.json"


def current_path() -> Path:
    """The file of the device that JAX runs on."""
    return path(gpu_kind())


def current_rates(device: str | None = None) -> Rates:
    """Those that `bk_jax.calibrate` stored, or defaults. Never raises.

    `device` is what the caller plans for, see `target`.

    >>> current_rates().product > 0
    True
    """
    kind = gpu_kind(device)
    default = _default_rates() if kind is None else nominal_rates(kind)
    try:
        return from_json(json.loads(path(kind).read_text()))
    except FileNotFoundError:
        return default
    except (OSError, ValueError, KeyError, TypeError):
        problem = f"{default.source}, because {path(kind)} cannot be read"
        return dataclasses.replace(default, source=problem)


def _default_rates() -> Rates:
    """By instruction set; the shipped numbers are of two cores."""
    module = _native.library().module
    isa = module.active_isa() if module is not None else "none"
    rates = AVX512 if isa in ("avx512", "avx512bf16", "amx") else AVX2
    return rates.faster(cores() / 2, keep=("memory", "operation"))


def store(rates: Rates, gpu: str | None = None) -> Path:
    """Writes the file whole or not at all; an `OSError` says which folder it needs."""
    file = path(gpu)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=file.stem, suffix=".new")
        with os.fdopen(handle, "w") as out:
            json.dump(dataclasses.asdict(rates), out, indent=1)
        os.replace(temporary, file)
    except OSError as error:
        raise OSError(
            f"calibrate could not write {file} ({error}). Make its folder writable, set "
            "XDG_CACHE_HOME to one that is, or pass save=False to keep the rates to yourself."
        ) from error
    return file
