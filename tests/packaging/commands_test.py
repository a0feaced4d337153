"""What a newcomer types: make, tools/setup.sh, .ci/run."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETUP = ROOT / "tools" / "setup.sh"


def run(*command: str | Path, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, **options)


def source_setup(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a few lines of bash with the functions of tools/setup.sh defined."""
    return run("bash", "-c", f'. "{SETUP}"\n{script}', env=os.environ | environment)


@pytest.fixture
def bare_checkout(tmp_path: Path):
    """Makes a checkout in a folder of the given name that nobody has set up."""

    def make(name: str) -> Path:
        root = tmp_path / name
        shutil.copytree(ROOT / "tools", root / "tools")
        (root / "python" / "bk_jax").mkdir(parents=True)
        for file in (
            "requirements.lock",
            "pyproject.toml",
            "setup.py",
            "python/bk_jax/__init__.py",
        ):
            shutil.copy(ROOT / file, root / file)
        return root

    return make


@pytest.fixture
def fake_commands(tmp_path: Path):
    """A PATH with bash's helpers and the given scripts, and nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("awk", "bash", "cat", "comm", "dirname", "id", "mkdir", "sed", "sort"):
        (folder / name).symlink_to(shutil.which(name))

    def add(**scripts: str) -> str:
        for name, body in scripts.items():
            path = folder / name.replace("_", "-")
            path.write_text(f"#!{shutil.which('bash')}\n{body}\n")
            path.chmod(0o755)
        return str(folder)

    return add


def test_make_alone_lists_every_target():
    listed = re.findall(r"^  (\S+)  +\S", run("make", cwd=ROOT).stdout, re.MULTILINE)
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert sorted(listed) == sorted(phony[1].split())


def test_make_targets_set_up_first():
    rules = re.findall(r"^([a-z-]+):([^#\n]*)##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    needs = {target: prerequisites.split() for target, prerequisites in rules}
    for target in set(needs) - {"help", "setup", "lint", "clean"}:
        assert needs[target] == ["setup"], target


def test_scripts_can_be_executed():
    for script in (SETUP, ROOT / "tools" / "wheel_elsewhere.sh", ROOT / ".ci" / "run"):
        assert os.access(script, os.X_OK), script


def test_setup_help_names_every_option():
    result = run(SETUP, "--help")
    assert result.returncode == 0
    for option in ("--check", "--system-only", "--no-system", "PYTHON"):
        assert option in result.stdout


def test_setup_refuses_an_unknown_option():
    result = run(SETUP, "--chek")
    assert result.returncode == 2
    assert "usage:" in result.stderr


def test_setup_check_lists_what_a_bare_checkout_needs(bare_checkout):
    root = bare_checkout("checkout")
    result = run(root / "tools" / "setup.sh", "--check")
    assert result.returncode == 1
    for step in (".venv", "Python packages", "native module", "editable mode"):
        assert re.search(f"to do: .*{re.escape(step)}", result.stdout), step
    assert not (root / ".venv").exists()


def test_setup_refuses_a_path_with_spaces_before_anything_else(bare_checkout):
    root = bare_checkout("a checkout")
    result = run(root / "tools" / "setup.sh")
    assert result.returncode == 1
    assert "cannot build in a path that contains spaces" in result.stderr
    assert not (root / ".venv").exists()


def test_setup_without_apt_says_what_to_install(bare_checkout, fake_commands):
    root = bare_checkout("checkout")
    result = run(root / "tools" / "setup.sh", env={"PATH": fake_commands()})
    assert result.returncode == 1
    assert "no apt" in result.stderr
    assert re.search(r"^ +libgtest-dev +C\+\+ tests$", result.stderr, re.MULTILINE)
    assert "--no-system" in result.stderr


def test_setup_without_root_and_sudo_says_what_to_type(bare_checkout, fake_commands):
    root = bare_checkout("checkout")
    path = fake_commands(apt_get="exit 1", dpkg_query="exit 1")
    Path(path, "id").unlink()
    fake_commands(id="echo 1000")
    result = run(root / "tools" / "setup.sh", env={"PATH": path})
    assert result.returncode == 1
    assert "apt-get install --no-install-recommends bazel-bootstrap" in result.stderr


def test_only_packages_that_are_not_installed_are_missing(fake_commands):
    # The second package was removed and left its configuration behind.
    path = fake_commands(dpkg_query="echo installed g++; echo config-files shellcheck; exit 1")
    missing = source_setup("missing_packages", PATH=path).stdout.split()
    assert "g++" not in missing
    assert {"shellcheck", "bazel-bootstrap"} <= set(missing)


def test_every_package_has_a_reason():
    lines = (ROOT / "tools" / "debian_packages.txt").read_text().splitlines()
    for line in lines:
        assert line.startswith("#") or re.fullmatch(r"[a-z0-9+.-]+ +\w.*", line), line


def test_a_step_is_done_when_its_stamp_holds_its_hash(tmp_path: Path):
    script = f"""
    STAMPS={tmp_path}/stamps
    is_done step a && echo early
    mark_done step a
    is_done step a && echo same
    is_done step b || echo changed
    """
    assert source_setup(script).stdout.split() == ["same", "changed"]
    assert [path.name for path in (tmp_path / "stamps").iterdir()] == ["step"]


def test_a_user_bazelrc_that_somebody_wrote_is_left_alone(tmp_path: Path):
    rc = tmp_path / "user.bazelrc"
    script = f"ROOT={tmp_path} VENV_PYTHON=/env/python; bazel_defaults"
    source_setup(script)
    assert "--repo_env=BK_JAX_PYTHON=/env/python" in rc.read_text()
    rc.write_text("build --jobs=1\n")
    source_setup(script)
    assert rc.read_text() == "build --jobs=1\n"
