"""Builds the native module through Bazel; everything else is in pyproject.toml."""

import atexit
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
WITH_CUDA = os.environ.get("BK_JAX_WITH_CUDA", "") not in ("", "0")
# From 3.12 on one module serves that Python and all later ones (see third_party/python.bzl).
STABLE_ABI = sys.version_info >= (3, 12) and not sysconfig.get_config_var("Py_GIL_DISABLED")
NO_NATIVE = os.environ.get("BK_JAX_NO_NATIVE", "") not in ("", "0")


class BazelBuild(build_ext):
    """Asks Bazel for the extension instead of the compiler that setuptools knows."""

    def build_extension(self, ext: Extension) -> None:
        into = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        tool = ROOT / "tools" / "build_native.py"
        command = [sys.executable, str(tool), "--isolated", "--into", str(into)]
        if ext.name.endswith("_cuda"):
            command.append("--cuda")
        if subprocess.run(command, check=False).returncode != 0:
            sys.exit(1)  # the tool has said why


if NO_NATIVE:
    print("bk_jax: BK_JAX_NO_NATIVE is set: the custom calls will run as plain JAX (slower)")

# A new folder for every build: in a kept one, modules that were deleted since would reach the wheel.
BUILD_BASE = tempfile.mkdtemp(prefix="bk_jax_build_")
atexit.register(shutil.rmtree, BUILD_BASE, ignore_errors=True)

MODULES = [] if NO_NATIVE else ["_cpu"] + ["_cuda"] * WITH_CUDA

OPTIONS = {"build": {"build_base": BUILD_BASE}}
if MODULES and STABLE_ABI:
    OPTIONS["bdist_wheel"] = {"py_limited_api": "cp312"}

# With an extension the wheel is for one platform, and one Python or 3.12 and later; without, for all.
setup(
    ext_modules=[
        Extension(f"bk_jax.{name}", sources=[], py_limited_api=STABLE_ABI) for name in MODULES
    ],
    cmdclass={"build_ext": BazelBuild},
    options=OPTIONS,
)
