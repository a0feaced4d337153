"""The package's metadata, its lock file, and what the tree may contain."""

import importlib.metadata
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import bk_jax

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def read_lock(name: str = "requirements.lock") -> dict[str, str]:
    lines = (ROOT / name).read_text().splitlines()
    pins = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pins}


def declared_requirements() -> list[Requirement]:
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    elsewhere = (
        "docs",
        "mechanisms",
    )  # pinned in requirements-docs.lock, requirements-peers-jax.lock
    groups = [project["dependencies"], *(extras[n] for n in extras if n not in elsewhere)]
    groups.append(PROJECT["build-system"]["requires"])
    groups.append(PROJECT["tool"]["lock"]["without-dependencies"])
    return [Requirement(text) for group in groups for text in group]


def without_dependencies() -> set[str]:
    """What is installed for its files, or for a part that needs nothing else."""
    pins = PROJECT["tool"]["lock"]["without-dependencies"]
    return {canonicalize_name(Requirement(pin).name) for pin in pins}


def tracked_files() -> list[Path]:
    command = ["git", "ls-files", "-z"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]


def test_version_is_written_once_and_reaches_the_metadata():
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert importlib.metadata.version("bk_jax") == bk_jax.__version__


def test_changelog_opens_with_the_present_version():
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == bk_jax.__version__


def test_type_information_is_shipped():
    assert (ROOT / "python" / "bk_jax" / "py.typed").exists()
    assert "py.typed" in PROJECT["tool"]["setuptools"]["package-data"]["bk_jax"]


def test_the_library_itself_needs_only_jax_and_numpy():
    names = {Requirement(text).name for text in PROJECT["project"]["dependencies"]}
    assert names == {"jax", "jaxlib", "numpy"}


def test_lock_pins_a_fitting_version_of_everything_declared():
    lock = read_lock()
    wrong = [
        str(requirement)
        for requirement in declared_requirements()
        if not requirement.specifier.contains(lock.get(canonicalize_name(requirement.name), "0"))
    ]
    assert wrong == []


def test_the_lock_of_the_peers_has_what_strategies_are_optimized_with():
    lock = read_lock("requirements-peers-jax.lock")
    for text in PROJECT["project"]["optional-dependencies"]["mechanisms"]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(lock[canonicalize_name(requirement.name)])


def test_the_lock_of_the_site_follows_the_lock():
    site, lock = read_lock("requirements-docs.lock"), read_lock()
    for text in PROJECT["project"]["optional-dependencies"]["docs"]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(site[canonicalize_name(requirement.name)])
    assert {name: site[name] for name in site if name in lock and site[name] != lock[name]} == {}


def test_lock_names_the_dependencies_of_what_it_pins():
    lock = read_lock()
    missing = set()
    for name in set(lock) - without_dependencies():
        for text in importlib.metadata.requires(name) or []:
            requirement = Requirement(text)
            # Without the extras of their own packages: we ask for none.
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                missing.add(canonicalize_name(requirement.name))
    assert missing - set(lock) == set()


def test_installed_packages_are_the_locked_ones():
    other = {
        name: (importlib.metadata.version(name), version)
        for name, version in read_lock().items()
        if importlib.metadata.version(name) != version
    }
    assert other == {}


def test_native_build_uses_the_locked_jaxlib_and_nanobind():
    lock = read_lock()
    requires = {Requirement(text).name: text for text in PROJECT["build-system"]["requires"]}
    assert requires["jaxlib"] == f"jaxlib=={lock['jaxlib']}"
    assert requires["nanobind"] == f"nanobind=={lock['nanobind']}"


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("a path of one machine", r"(?<![\w.@}])/(?:work|root|home|tmp|farm)/\w"),
        ("an unfinished place", r"\b(?:TO" + r"DO|FIX" + r"ME)\b"),
    ],
)
def test_tracked_files_hold_no(what: str, pattern: str):
    found = []
    for path in tracked_files():
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:  # an image
            continue
        found += [
            f"{path.relative_to(ROOT)}:{number}: {what}"
            for number, line in enumerate(lines, 1)
            if re.search(pattern, line)
        ]
    assert found == []
