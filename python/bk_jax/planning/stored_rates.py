"""Stored rates: where a machine's calibration is kept between runs, as JSON.

One file for each CPU, version of bk_jax and version of jaxlib: another one would be wrong.
"""

from __future__ import annotations

import json
import os
import platform
import re
import tempfile
from pathlib import Path
from typing import Any

import jaxlib.version


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


def path() -> Path:
    """The file for this machine and these versions, in the user's cache."""
    import bk_jax

    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    parts = (cpu_name(), f"{cores()} cores", bk_jax.__version__, jaxlib.version.__version__)
    name = "_".join(re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-") for part in parts)
    return Path(cache) / "bk_jax" / f"rates_{name}.json"


def load() -> tuple[Any, str]:
    """What the file holds, if anything, and what is wrong with it. Never raises."""
    file = path()
    try:
        return json.loads(file.read_text()), ""
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError):
        return None, f"the calibration in {file} cannot be read"


def store(rates: Any) -> Path:
    """Writes the file whole or not at all; an `OSError` says which folder it needs."""
    file = path()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=file.stem, suffix=".new")
        with os.fdopen(handle, "w") as out:
            json.dump(rates, out, indent=1)
        os.replace(temporary, file)
    except OSError as error:
        raise OSError(
            f"calibrate could not write {file} ({error}). Make its folder writable, set "
            "XDG_CACHE_HOME to one that is, or pass save=False to keep the rates to yourself."
        ) from error
    return file
