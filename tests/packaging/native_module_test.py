"""The native module and the source archive hold what they need, and need little of the system."""

import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from packaging.version import Version

import bk_jax
import wheels

ROOT = Path(__file__).parents[2]
(MODULE,) = Path(bk_jax.__file__).parent.glob("_cpu.*.so")
OLDEST_GLIBC = Version(re.search(r"manylinux_(\d+)_(\d+)", wheels.PLATFORM).expand(r"\1.\2"))

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def elf():
    with MODULE.open("rb") as file:
        yield ELFFile(file)


def test_it_shows_nothing_but_its_entry(elf):
    symbols = elf.get_section_by_name(".dynsym").iter_symbols()
    shown = [s.name for s in symbols if s["st_shndx"] != "SHN_UNDEF" and s.name]
    assert shown == ["PyInit__cpu"]


def test_it_needs_the_c_library_alone(elf):
    """The C++ library is inside."""
    tags = elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
    assert {tag.needed.partition(".so")[0] for tag in tags} <= {
        "ld-linux-aarch64",
        "ld-linux-x86-64",
        "libc",
        "libgcc_s",
        "libm",
    }


def test_it_loads_with_an_old_c_library(elf):
    (needs,) = (s for s in elf.iter_sections() if isinstance(s, GNUVerNeedSection))
    names = [version.name for _, versions in needs.iter_versions() for version in versions]
    glibc = [Version(name.removeprefix("GLIBC_")) for name in names if name.startswith("GLIBC_")]
    assert max(glibc) <= OLDEST_GLIBC


def test_the_source_archive_is_what_git_has(tmp_path):
    """All that the native build needs, and nothing that a build or a test left behind."""
    build = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    (archive,) = tmp_path.iterdir()
    with tarfile.open(archive) as files:
        inside = {m.name.partition("/")[2] for m in files.getmembers() if m.isfile()}
    made = {"PKG-INFO", "setup.cfg"}
    inside = {name for name in inside - made if ".egg-info/" not in name}
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\n")
    assert inside <= set(tracked)
    for folder in ("custom_calls/", "xla_plugin/", "third_party/", "tools/", "python/"):
        expected = {name for name in tracked if name.startswith(folder)}
        assert expected - inside <= {"python/BUILD"}, folder  # which is for the benchmarks
    assert {"WORKSPACE", "BUILD", ".bazelrc", "pyproject.toml", "setup.py", "LICENSE"} <= inside
