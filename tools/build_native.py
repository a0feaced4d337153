"""Builds the native module with Bazel and puts it where Python finds it.

    python tools/build_native.py --into python/bk_jax

builds for the Python that runs it; with `--cuda` the module for GPUs, which needs a CUDA toolkit.
The file is replaced only when it changed, and in one step, so
that a process that has the old one loaded keeps it.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import bazel

MODULES = {"_cpu": [], "_cuda": ["--config=cuda"]}  # and the flags that each is built with
FAILED = """\
bk_jax: error: the native module could not be built; Bazel's messages are above.
  Are all packages there?   tools/setup.sh --check
  Without native code:      set BK_JAX_NO_NATIVE=1 and install again (works, but slower)."""


def stable_abi() -> bool:
    """Whether one module serves this Python and all later ones; so does third_party/python.bzl."""
    return sys.version_info >= (3, 12) and not sysconfig.get_config_var("Py_GIL_DISABLED")


def suffix() -> str:
    """How the file of a module ends."""
    return ".abi3.so" if stable_abi() else str(sysconfig.get_config_var("EXT_SUFFIX"))


def build(module: str, *, scratch: Path | None) -> Path:
    """Builds a module and returns the file; `scratch` keeps Bazel's state out of ours."""
    startup: list[str] = []
    flags = list(MODULES[module])
    if scratch is not None:
        startup = ["--batch", f"--output_base={scratch}"]
        flags += ["--symlink_prefix=/"]  # no bazel-bin and the like
    result = bazel.run("build", *flags, f"//xla_plugin:{module}", startup=startup, quiet=True)
    name = module + suffix()
    built = [path for path in result.outputs() if path.name == name]
    if result.exit_code != 0 or not built:
        sys.exit(FAILED)
    return built[0]


def place(built: Path, directory: Path) -> bool:
    """Copies the module into `directory`; returns whether that changed anything."""
    target = directory / built.name
    if target.exists() and filecmp.cmp(built, target, shallow=False):
        return False
    directory.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(built, partial)
    partial.chmod(0o755)
    partial.replace(target)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, required=True, help="folder that gets the module")
    parser.add_argument(
        "--isolated",
        action="store_true",
        help="use a temporary Bazel output folder and leave no server (for pip)",
    )
    parser.add_argument("--cuda", action="store_true", help="build the module for GPUs instead")
    arguments = parser.parse_args()
    module = "_cuda" if arguments.cuda else "_cpu"
    if not arguments.isolated:
        changed = place(build(module, scratch=None), arguments.into)
    else:
        scratch = Path(tempfile.mkdtemp(prefix="bk_jax_bazel_"))
        try:
            changed = place(build(module, scratch=scratch), arguments.into)
        finally:
            # Bazel makes its outputs read-only.
            subprocess.run(["chmod", "-R", "u+w", scratch], check=False)
            shutil.rmtree(scratch, ignore_errors=True)
    if changed:
        print(f"set-up: built //xla_plugin:{module}")


if __name__ == "__main__":
    main()
