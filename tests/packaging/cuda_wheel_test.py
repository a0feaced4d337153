"""The wheel with the module for GPUs: how it is made, and how bk_jax finds what is in it."""

import sys
import sysconfig
import zipfile

import pytest

import bk_jax
import cuda_wheel
from bk_jax import _cuda_module

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
NVCC = "Cuda compilation tools, release {}.0, V{}.0.88\nBuild cuda_13.0.r13.0/compiler"


@pytest.mark.parametrize("major", [12, 13])
def test_the_name_says_for_which_cuda_it_is(major):
    assert cuda_wheel.toolkit_major(NVCC.format(major, major)) == major


def test_a_version_that_cannot_be_read_is_an_error():
    with pytest.raises(SystemExit, match="does not name a release"):
        cuda_wheel.toolkit_major("not a compiler")


def test_the_wheel_holds_the_module_and_needs_the_same_bk_jax(tmp_path):
    module = tmp_path / f"_cuda{SUFFIX}"
    module.write_bytes(b"machine code")
    cuda_wheel.stage(module, 13, cuda_wheel.package_version(), tmp_path / "project")
    wheel = cuda_wheel.make_wheel(tmp_path / "project", tmp_path / "dist")
    assert wheel.name.startswith(f"bk_jax_cuda13-{bk_jax.__version__}-cp3")  # not for any Python
    with zipfile.ZipFile(wheel) as files:
        assert files.read(f"bk_jax_cuda13/_cuda{SUFFIX}") == b"machine code"
        (metadata,) = (name for name in files.namelist() if name.endswith("/METADATA"))
        assert f"Requires-Dist: bk_jax=={bk_jax.__version__}" in files.read(metadata).decode()


@pytest.fixture
def install(monkeypatch, tmp_path):
    """Makes packages that can be imported, and hides the module of the checkout."""
    spec = _cuda_module.importlib.util.find_spec
    monkeypatch.setattr(
        _cuda_module.importlib.util,
        "find_spec",
        lambda name: None if name == "bk_jax._cuda" else spec(name),
    )
    monkeypatch.syspath_prepend(tmp_path)

    def make(name, **files):
        (tmp_path / name).mkdir()
        for module, text in {"__init__": "", **files}.items():
            (tmp_path / name / f"{module}.py").write_text(text)
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.delitem(sys.modules, f"{name}._cuda", raising=False)

    return make


VERSION = f"__version__ = {bk_jax.__version__!r}"


def test_a_plugin_is_found_by_its_name(install):
    install("bk_jax_cuda12", __init__=VERSION, _cuda="")
    assert _cuda_module.find()[1:] == ("bk_jax_cuda12", "")


@pytest.mark.parametrize("major", [12, 13])
def test_of_several_that_of_jaxs_own_plugin_is_used(install, major):
    for name in ("bk_jax_cuda12", "bk_jax_cuda13"):
        install(name, __init__=VERSION, _cuda="")
    install(f"jax_cuda{major}_plugin")
    assert _cuda_module.find().package == f"bk_jax_cuda{major}"


def test_a_plugin_of_another_version_is_refused(install):
    install("bk_jax_cuda13", __init__="__version__ = '0.0.7'", _cuda="")
    found = _cuda_module.find()
    assert found.module is None
    assert "bk_jax_cuda13 is version 0.0.7" in found.problem
    assert f"`pip install bk_jax_cuda13=={bk_jax.__version__}`" in found.problem


def test_a_plugin_that_does_not_load_says_why(install):
    install("bk_jax_cuda13", __init__=VERSION, _cuda="raise ImportError('no libc')")
    assert "bk_jax_cuda13._cuda could not be imported (no libc)" in _cuda_module.find().problem


def test_without_a_plugin_the_message_says_what_to_install(install):
    assert "Install the wheel for your CUDA (`bk_jax_cuda13`)" in _cuda_module.find().problem
