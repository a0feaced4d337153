"""What a result belongs to: the machine, the flags and the commit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from benchmarks.ops.machine import describe

FLAGS = ("XLA_FLAGS", "BK_JAX_ISA", "BK_JAX_NATIVE", "OMP_NUM_THREADS")


def commit(workspace: Path) -> str:
    """The commit of the checkout, with a plus if files differ from it."""
    git = ["git", "-C", str(workspace)]
    head = _output([*git, "rev-parse", "--short", "HEAD"])
    results = ":!benchmarks/report", ":!benchmarks/REPORT.md"
    changed = _output([*git, "status", "--porcelain", "--untracked-files=no", "--", ".", *results])
    return head + ("+" if changed else "") if head else "unknown"


def _output(line: list[str]) -> str:
    run = subprocess.run(line, capture_output=True, text=True, check=False)
    return run.stdout.strip() if run.returncode == 0 else ""


def provenance(workspace: Path) -> dict[str, str]:
    """For the results of one run."""
    flags = {name: os.environ[name] for name in FLAGS if name in os.environ}
    text = ", ".join(f"{name}={value}" for name, value in flags.items())
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    memory = f"{pages / 2**30:.0f} GiB"
    commit_id = commit(workspace)
    return {"machine": describe(), "memory": memory, "flags": text or "none", "commit": commit_id}
