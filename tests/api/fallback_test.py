"""Without the native library: the same results, one warning unless it was wanted, and advice."""

import io
import json
import sys
import types

import jax
import jaxlib.version
import numpy as np
import pytest
from support.models import mlp, mlp_batch, mlp_loss
from support.process import run_python

import bk_jax
from bk_jax import _native

# Prints the gradient, the warnings and what `diagnose` says, as JSON.
PROGRAM = """
import io, json, sys, warnings
{prepare}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import bk_jax, jax
    from support.models import mlp, mlp_batch, mlp_loss
    step = jax.jit(bk_jax.clipped_value_and_grad(mlp_loss))
    value, grads = step(mlp(), mlp_batch(3))
    jax.eval_shape(step, mlp(), mlp_batch(4))  # would warn again if it did so at every trace
text = io.StringIO()
bk_jax.diagnose(file=text)
print(json.dumps({{
    "grads": {{name: g.tolist() for name, g in grads.items()}},
    "warnings": [[w.category.__name__, str(w.message)] for w in caught],
    "diagnose": text.getvalue(),
}}))
"""


def outcome(prepare="", **environment):
    return json.loads(run_python(PROGRAM.format(prepare=prepare), **environment).stdout)


@pytest.fixture(scope="module")
def switched_off():
    return outcome(BK_JAX_NATIVE="0")


def test_switched_off_on_purpose(switched_off):
    assert switched_off["warnings"] == []
    assert "not in use: switched off by BK_JAX_NATIVE=0" in switched_off["diagnose"]
    assert "every operation runs as pure JAX (same results, slower)" in switched_off["diagnose"]


def test_a_library_that_can_not_be_imported(switched_off):
    out = outcome('sys.modules["bk_jax._cpu"] = None')
    ((category, message),) = out["warnings"]
    assert category == "RuntimeWarning"
    assert message.startswith("bk_jax runs without its native library, with slower pure-JAX code: ")
    for text in (message, out["diagnose"]):
        assert "bk_jax._cpu could not be imported" in text
        assert "make setup" in text
        assert "pip install --force-reinstall bk_jax" in text
    assert out["grads"] == switched_off["grads"]


def fake_library(monkeypatch, registrations):
    """What is known of a native module with these registrations."""
    module = types.ModuleType("bk_jax._cpu")
    module.registrations = lambda: registrations
    module.ffi_api_version = lambda: (9, 9)
    monkeypatch.setitem(sys.modules, "bk_jax._cpu", module)
    monkeypatch.setenv("BK_JAX_NATIVE", "1")
    return _native.library.__wrapped__()


def test_an_old_build_that_lacks_a_custom_call(monkeypatch):
    found = fake_library(monkeypatch, {"bk_ghost_norm": object()})
    assert found.module is None
    assert found.targets == ()
    assert "bk_jax._cpu lacks bk_clip_factor, bk_clipped_gemm" in found.problem
    assert "make setup" in found.problem


def test_a_build_that_xla_refuses(monkeypatch):
    assert jax.devices()  # the backend is there
    found = fake_library(monkeypatch, dict.fromkeys(_native.TARGETS, object()))
    assert found.module is None
    assert "XLA refused bk_jax._cpu, built for FFI 9.9" in found.problem
    assert "make setup" in found.problem


def test_diagnose_says_why_the_library_is_not_in_use(monkeypatch):
    broken = _native.Library(None, (), "it is Sunday. Try again tomorrow.")
    monkeypatch.setattr(_native, "library", lambda: broken)
    text = io.StringIO()
    bk_jax.diagnose(file=text)
    assert "native library      not in use: it is Sunday. Try again tomorrow." in text.getvalue()


@pytest.mark.native
def test_the_native_library_gives_the_same(switched_off):
    _, grads = jax.jit(bk_jax.clipped_value_and_grad(mlp_loss))(mlp(), mlp_batch(3))
    for name, expected in switched_off["grads"].items():
        np.testing.assert_allclose(grads[name], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.native
def test_diagnose_lists_the_custom_calls(capsys):
    bk_jax.diagnose()
    out = capsys.readouterr().out
    assert all(f"{target} (cpu)" in out for target in _native.TARGETS)
    assert "instruction set" in out


def test_diagnose_names_versions(capsys):
    bk_jax.diagnose()
    out = capsys.readouterr().out
    for text in (
        bk_jax.__version__,
        jax.__version__,
        jaxlib.version.__version__,
        str(jax.devices()[0]),
    ):
        assert text in out
