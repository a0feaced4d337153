"""Environments of the libraries that bk_jax is compared with: .venv-peers-jax and .venv-peers-torch.

    python tools/peers.py [jax] [torch]

Each is made from its lock, requirements-peers-*.lock, if it is not there or the lock changed. The first
takes 1 GB; it also holds transformers, for Hugging Face's Flax classes. The second takes 5 GB: torch
does not load without the CUDA libraries that its wheel names. Who has a CPU wheel of the same version
(PIP_FIND_LINKS, PIP_INDEX_URL) still gets those libraries, unused.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("jax", "torch")


def paths(name: str) -> tuple[Path, Path]:
    """The lock and the environment."""
    return ROOT / f"requirements-peers-{name}.lock", ROOT / f".venv-peers-{name}"


def make_environment(name: str) -> None:
    """Installs exactly what the lock says; does nothing when that is there already."""
    lock, venv = paths(name)
    stamp = venv / ".bk_jax"  # holds the hash of the lock that is installed
    wanted = hashlib.sha256(lock.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"set-up: making {venv.name} from {lock.name}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
    install = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    install += ["--disable-pip-version-check", "--no-deps", "--requirement", str(lock)]
    subprocess.run(install, check=True)
    stamp.write_text(wanted)


def main() -> None:
    wanted = sys.argv[1:] or list(NAMES)
    if not set(wanted) <= set(NAMES):
        sys.exit(f"{__doc__}\nenvironments are {' and '.join(NAMES)}")
    for name in wanted:
        make_environment(name)


if __name__ == "__main__":
    main()
