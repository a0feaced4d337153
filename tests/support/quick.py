"""How tests have XLA compile: quickly. Most of their time is compilation, and each program runs once.

Plain loops compile faster than XLA's fusion emitters do, and LLVM need not optimise what computes a
few numbers. Values, layouts, copies and calls of a program are the same: they are decided before.
"""

from __future__ import annotations

import os

FLAGS = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_llvm_disable_expensive_passes=true",
)


def compile_quickly() -> None:
    """For this process, before JAX starts, and those that it starts; flags that are given come last."""
    os.environ["XLA_FLAGS"] = " ".join([*FLAGS, os.environ.get("XLA_FLAGS", "")]).strip()
