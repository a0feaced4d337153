"""Environments of the libraries that bk_jax is compared with: .venv-peers-jax and .venv-peers-torch.

    python tools/peers.py [jax] [torch]

Each is made from its lock, requirements-peers-*.lock, if it is not there or the lock changed. The first
takes 1 GB; it also holds transformers, for Hugging Face's Flax classes. The second takes 5 GB: torch
does not load without the CUDA libraries that its wheel names. Who has a CPU wheel of the same version
(PIP_FIND_LINKS, PIP_INDEX_URL) still gets those libraries, unused.
"""

from __future__ import annotations

import sys

from environments import ROOT, make_environment

NAMES = ("jax", "torch")


def main() -> None:
    wanted = sys.argv[1:] or list(NAMES)
    if not set(wanted) <= set(NAMES):
        sys.exit(f"{__doc__}\nenvironments are {' and '.join(NAMES)}")
    for name in wanted:
        make_environment(ROOT / f".venv-peers-{name}", ROOT / f"requirements-peers-{name}.lock")


if __name__ == "__main__":
    main()
