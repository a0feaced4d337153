"""Environments beside .venv, each made from a lock: exactly what it says, and only if it changed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def python_of(venv: Path) -> Path:
    """The interpreter of an environment."""
    return venv / "bin" / "python"


def make_environment(venv: Path, lock: Path) -> None:
    """Installs what the lock says; does nothing when that is there already.

    Raises:
      subprocess.CalledProcessError: if a package cannot be had.
    """
    stamp = venv / ".bk_jax"  # holds the hash of the lock that is installed
    wanted = hashlib.sha256(lock.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"set-up: making {venv.name} from {lock.name}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
    install = [str(python_of(venv)), "-m", "pip", "install", "--quiet"]
    install += ["--disable-pip-version-check", "--no-deps", "--requirement", str(lock)]
    subprocess.run(install, check=True)
    stamp.write_text(wanted)
