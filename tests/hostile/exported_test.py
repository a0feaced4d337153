"""A private step that was exported runs in a process that has never traced one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from support.process import run_python

import bk_jax
from bk_jax import _native

W = {"bias": np.zeros(4, np.float32), "kernel": np.ones((3, 4), np.float32)}
X = np.arange(30, dtype=np.float32).reshape(2, 5, 3)
KEY = np.asarray([1, 2], np.uint32)

# What `jax.export.deserialize` makes of a file, without the package that it needs for this: all but the
# program itself follows from the signature.
LOAD = """
    import dataclasses, os
    {imports}
    import jax, numpy as np
    from jax import export

    arrays = np.load(os.environ["PROGRAM"])
    w = {{"bias": arrays["bias"], "kernel": arrays["kernel"]}}
    args = (w, arrays["x"], arrays["key"])
    stub = export.export(jax.jit(lambda w, x, key: (x[0, 0, 0] + key[0] * 0.0, w)))(*args)
    exported = dataclasses.replace(stub, mlir_module_serialized=arrays["program"].tobytes())
    value, grads = exported.call(*args)
    np.testing.assert_array_equal(grads["kernel"], arrays["expected"])
"""


def loss_fn(w, x):
    return jnp.sum(jnp.tanh(x @ w["kernel"] + w["bias"]))


def step(w, x, key):
    key = jax.random.wrap_key_data(key, impl="threefry2x32")
    return bk_jax.dp_value_and_grad(loss_fn)(w, x, key=key)


@pytest.fixture
def program(tmp_path):
    """A file with an exported step, its arguments and its result."""
    calls = bk_jax.register_custom_calls()
    checks = [export.DisabledSafetyCheck.custom_call(name) for name in calls]
    exported = export.export(jax.jit(step), disabled_checks=checks)(W, X, KEY)
    path = tmp_path / "program.npz"
    code = np.frombuffer(exported.mlir_module_serialized, np.uint8)
    expected = exported.call(W, X, KEY)[1]["kernel"]
    np.savez(path, **W, x=X, key=KEY, program=code, expected=expected)
    return path


@pytest.mark.native
@pytest.mark.parametrize("order", ["import bk_jax, jax", "import jax, bk_jax"])
def test_one_line_makes_an_exported_step_run(program, order):
    imports = f"{order}\n    bk_jax.register_custom_calls()"
    run_python(LOAD.format(imports=imports), PROGRAM=str(program))


@pytest.mark.native
def test_the_line_is_needed(program):
    """The day on which it is not, the documents can say so."""
    with pytest.raises(AssertionError, match="No FFI handler registered for bk_"):
        run_python(LOAD.format(imports="import bk_jax"), PROGRAM=str(program))


@pytest.mark.native
def test_what_is_registered_is_named():
    assert bk_jax.register_custom_calls() == _native.library().targets
    assert set(_native.TARGETS) <= set(bk_jax.register_custom_calls())


def test_without_the_native_library_the_line_says_so(monkeypatch):
    none = _native.Library(None, (), "it was not built")
    monkeypatch.setattr(_native, "library", lambda: none)
    monkeypatch.setattr(_native, "cuda_library", lambda: none)
    expected = (
        "no custom call of bk_jax is registered, so a program with one cannot run: it was not"
    )
    with pytest.raises(RuntimeError, match=expected):
        bk_jax.register_custom_calls()


def test_importing_the_package_starts_nothing():
    run_python("""
        import sys
        import bk_jax
        assert "jax" not in sys.modules and "bk_jax._native" not in sys.modules
    """)
