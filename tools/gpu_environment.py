"""The environment in which XLA compiles for a GPU that is not there: .venv-gpu.

    python tools/gpu_environment.py -m benchmarks.gpu.memory_table --help
    python tools/gpu_environment.py -m pytest tests/gpu_programs

Makes the environment from requirements-gpu.lock if it is not there or the lock changed, then runs its
Python with these arguments: the JAX of .venv with its CUDA plugin (1.1 GB), without CUDA's libraries.
XLA needs the toolkit's ptxas and libdevice, and our calls need `bk_jax._cuda`
(`python tools/build_native.py --cuda --into python/bk_jax`).
"""

from __future__ import annotations

import os
import subprocess
import sys

import bazel
import environments
from environments import ROOT

LOCK = ROOT / "requirements-gpu.lock"
VENV = ROOT / ".venv-gpu"
PYTHON = environments.python_of(VENV)
TESTS = "tests/gpu_programs"
# Without a device nothing can be timed: XLA stops at products by Triton, whose tiles it would try out.
FLAGS = ("--xla_gpu_autotune_level=0", "--xla_gpu_enable_triton_gemm=false")


def left_out() -> str:
    """Why programs for GPUs cannot be compiled here, as one line; empty once they can.

    Makes the environment if there is a toolkit.
    """
    if reason := bazel.cuda_left_out():
        return reason
    try:
        environments.make_environment(VENV, LOCK)
    except (subprocess.CalledProcessError, OSError) as error:
        return f"the packages of {LOCK.name} cannot be had ({error})"
    return ""


def environment() -> dict[str, str]:
    """Variables under which JAX's CUDA plugin loads without a driver, and our calls with it."""
    given = os.environ.get("XLA_FLAGS", "")
    return {
        **os.environ,
        "BK_JAX_CUDA": "1",
        "CUDA_VISIBLE_DEVICES": "-1",
        "JAX_PLATFORMS": "cpu",
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "python")]),
        "XLA_FLAGS": " ".join([*FLAGS, given]).strip(),
    }


def main() -> None:
    if not sys.argv[1:] or {"-h", "--help"} & set(sys.argv[1:2]):
        print(__doc__)
        return
    if reason := left_out():
        sys.exit(f"gpu_environment: {reason}")
    command = [str(PYTHON), *sys.argv[1:]]
    sys.exit(subprocess.run(command, cwd=ROOT, env=environment(), check=False).returncode)


if __name__ == "__main__":
    main()
