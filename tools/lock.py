"""Writes the locks: the exact version of every Python package that the set-up installs.

    python tools/lock.py [--upgrade]

requirements.lock is what pyproject.toml declares (dependencies, extras but docs and mechanisms, build
requirements), and what [tool.lock] pins there without dependencies; requirements-oldest.lock the oldest
JAX that is allowed, with what the transform's tests need; requirements-gpu.lock the versions of the
first, with JAX's CUDA plugin; requirements-docs.lock the versions of the first, with what builds the
site. pip resolves them without installing anything. Without `--upgrade` the versions of the present
locks are kept where they fit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
OLDEST_LOCK = ROOT / "requirements-oldest.lock"
OLDEST = [
    "jax==0.9.0",
    "jaxlib==0.9.0",
    "dp-accounting",
    "hypothesis",
    "packaging",
    "pytest",
    "pytest-xdist",
]
GPU_LOCK = ROOT / "requirements-gpu.lock"
GPU = [
    "hypothesis",
    "jax",
    "jax-cuda13-plugin",
    "jaxlib",
    "packaging",
    "protobuf",
    "pytest",
    "pytest-xdist",
]
DOCS_LOCK = ROOT / "requirements-docs.lock"
DOCS_EXTRAS = ("docs", "hlo", "train")
ELSEWHERE = (
    "docs",
    "mechanisms",
)  # extras with locks of their own: the site's, and tools/peers.py's
FOLLOWING = (GPU_LOCK, DOCS_LOCK)  # the versions of requirements.lock, where it has them
PYTHON = "3.11.2"  # Debian 12's; some packages ask for a later 3.11
HEADER = (
    f"# Written by tools/lock.py for Python {PYTHON}: change pyproject.toml, then run make lock.\n"
)


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def declared() -> list[str]:
    """Every requirement that pyproject.toml names, but for those that the set-up does without."""
    data = pyproject()
    extras = data["project"]["optional-dependencies"]
    groups = [
        data["build-system"]["requires"],
        data["project"]["dependencies"],
        *(group for name, group in extras.items() if name not in ELSEWHERE),
    ]
    return sorted({requirement for group in groups for requirement in group})


def of_the_site() -> list[str]:
    """What the site is built with: the package's own requirements, and those of some extras."""
    project = pyproject()["project"]
    groups = [project["optional-dependencies"][name] for name in DOCS_EXTRAS]
    return sorted({r for group in [project["dependencies"], *groups] for r in group})


def without_dependencies() -> dict[str, str]:
    """What [tool.lock] pins: installed alone, whatever it says it depends on."""
    pins = pyproject()["tool"]["lock"]["without-dependencies"]
    return dict(pin.split("==") for pin in pins)


def constraints_of(lock: Path, upgrade: bool) -> list[Path]:
    """The locks whose versions are kept."""
    kept = [LOCK] if lock in FOLLOWING else []
    return [*kept, *([lock] if lock.exists() and not upgrade else [])]


def resolve(requirements: list[str], constraints: list[Path]) -> dict[str, str]:
    """Asks pip for one set of versions that satisfies all requirements."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--report", str(report), *requirements]
        command += ["--python-version", PYTHON, "--only-binary=:all:", "--target", scratch]
        for path in constraints:
            command += ["--constraint", str(path)]
        subprocess.run(command, check=True)
        installs = json.loads(report.read_text())["install"]
    found = (item["metadata"] for item in installs)
    return {data["name"].lower().replace("_", "-"): data["version"] for data in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    arguments = parser.parse_args()
    wanted = {LOCK: declared(), OLDEST_LOCK: OLDEST, GPU_LOCK: GPU, DOCS_LOCK: of_the_site()}
    for lock, requirements in wanted.items():
        versions = resolve(requirements, constraints_of(lock, arguments.upgrade))
        if lock == LOCK:  # before the others, because one of them follows it
            versions |= without_dependencies()
        lock.write_text(HEADER + "".join(f"{n}=={versions[n]}\n" for n in sorted(versions)))
        print(f"{lock.name}: {len(versions)} packages")


if __name__ == "__main__":
    main()
