"""Builds the wheel that plugs the module for GPUs into bk_jax: `bk_jax_cuda13`, for CUDA 13.

    python tools/cuda_wheel.py [--into dist]

compiles with the toolkit of the `nvcc` on PATH, or of the folder that BK_JAX_CUDA_PATH names, and its
major version is in the name. Whoever has that wheel needs no toolkit.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import bazel
import build_native

PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "{version}"
description = "CUDA kernels of bk_jax, for CUDA {major}"
license = "Apache-2.0"
license-files = ["LICENSE"]
requires-python = ">=3.11"
dependencies = ["bk_jax=={version}"]

[tool.setuptools]
packages = ["{name}"]

[tool.setuptools.package-data]
{name} = ["*.so"]
"""
# A wheel with machine code is for one platform and one Python.
SETUP = """\
from setuptools import Distribution, setup


class Native(Distribution):
    def has_ext_modules(self):
        return True


setup(distclass=Native)
"""
INIT = '''\
"""CUDA {major} kernels of bk_jax, which finds this package by its name."""

__version__ = "{version}"
'''


def toolkit_major(text: str) -> int:
    """The major version in the output of `nvcc --version`."""
    found = re.search(r"release (\d+)\.\d+", text)
    if found is None:
        sys.exit(f"cuda_wheel: nvcc --version does not name a release: {text!r}")
    return int(found.group(1))


def package_version() -> str:
    """That of bk_jax, as it stands in the source."""
    text = (bazel.ROOT / "python" / "bk_jax" / "__init__.py").read_text()
    found = re.search(r'^__version__ = "(.*)"', text, re.MULTILINE)
    assert found is not None
    return found.group(1)


def stage(module: Path, major: int, version: str, folder: Path) -> None:
    """A project in `folder` whose wheel holds the module."""
    name = f"bk_jax_cuda{major}"
    words = {"name": name, "version": version, "major": major}
    package = folder / name
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PYPROJECT.format(**words))
    (folder / "setup.py").write_text(SETUP)
    (package / "__init__.py").write_text(INIT.format(**words))
    shutil.copy(bazel.ROOT / "LICENSE", folder)
    shutil.copyfile(module, package / module.name)


def make_wheel(project: Path, into: Path) -> Path:
    """The wheel of a staged project."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(into)]
    subprocess.run([*command, str(project)], check=True, stdout=subprocess.DEVNULL)
    return max(into.glob("bk_jax_cuda*.whl"), key=lambda path: path.stat().st_mtime)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--into", type=Path, default=bazel.ROOT / "dist", help="folder of the wheel"
    )
    into = parser.parse_args().into
    nvcc = bazel.nvcc()
    if nvcc is None:
        sys.exit("cuda_wheel: no CUDA toolkit (nvcc on PATH, or the folder BK_JAX_CUDA_PATH)")
    command = [str(nvcc), "--version"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    with tempfile.TemporaryDirectory() as scratch:
        module = build_native.build("_cuda", scratch=None)
        stage(module, toolkit_major(text), package_version(), Path(scratch, "project"))
        wheel = make_wheel(Path(scratch, "project"), into)
    print(f"cuda_wheel: {wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB, in {into}")


if __name__ == "__main__":
    main()
