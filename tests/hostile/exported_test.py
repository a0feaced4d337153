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
    exported = bk_jax.export_step(jax.jit(step))(W, X, KEY)
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
def test_without_the_names_jax_refuses():
    """The day on which it does not, `export_step` has one thing less to do."""
    with pytest.raises(
        ValueError, match="custom calls whose targets have no compatibility guarantees"
    ):
        export.export(jax.jit(step))(W, X, KEY)


def test_a_program_for_another_platform_is_plain_jax():
    exported = bk_jax.export_step(jax.jit(step), platforms=["tpu"])(W, X, KEY)
    assert exported.platforms == ("tpu",)
    assert "custom_call @bk_" not in exported.mlir_module()


def test_checks_of_ones_own_are_left_out_as_well():
    own = export.DisabledSafetyCheck.platform()
    exported = bk_jax.export_step(jax.jit(step), disabled_checks=[own])(W, X, KEY)
    assert own in exported.disabled_safety_checks


def test_a_callback_is_refused_with_a_way_out():
    def shown(w, x, key):
        value, grads = step(w, x, key)
        jax.debug.print("{}", value)
        return value, grads

    with pytest.raises(NotImplementedError, match="calls Python functions while it runs") as info:
        bk_jax.export_step(jax.jit(shown))(W, X, KEY)
    assert str(info.value).endswith("Export it without them.")


@pytest.mark.parametrize("place", ["position", "name"])
def test_keys_of_ours_are_refused_with_a_way_out(place):
    def with_key(w, x, state):
        return bk_jax.dp_value_and_grad(loss_fn)(w, x, key=state["key"])

    state = {"key": bk_jax.random.key()}
    args, kwargs = ((state,), {}) if place == "position" else ((), {"state": state})
    name = "2/key" if place == "position" else "state/key"
    with pytest.raises(TypeError, match=f"argument '{name}' is a key of bk_jax.random") as info:
        bk_jax.export_step(jax.jit(with_key))(W, X, *args, **kwargs)
    assert "jax.random.wrap_key_data(data, impl=bk_jax.random.CHACHA20)" in str(info.value)


def test_several_devices():
    run_python(
        """
        import jax, jax.numpy as jnp, numpy as np
        import bk_jax
        from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

        grad_fn = bk_jax.clipped_value_and_grad(lambda w, x: jnp.sum(jnp.tanh(x @ w)))
        w, x = np.ones((3, 4), np.float32), np.arange(24, dtype=np.float32).reshape(8, 3)

        def shardings(kind):
            mesh = jax.make_mesh((2,), ("data",), axis_types=(kind,))
            return mesh, (NamedSharding(mesh, P()), NamedSharding(mesh, P("data")))

        def same(exported, ins):
            assert exported.nr_devices == 2
            got = exported.call(*map(jax.device_put, (w, x), ins))[1]
            np.testing.assert_allclose(got, grad_fn(w, x)[1], rtol=1e-5)

        mesh, ins = shardings(AxisType.Auto)
        assert bk_jax.export_step(jax.jit(grad_fn))(w, x).nr_devices == 1
        try:
            bk_jax.export_step(jax.jit(grad_fn, in_shardings=ins))(w, x)
        except NotImplementedError as error:
            assert "Export a step of one device, a step inside jax.shard_map" in str(error), error
        else:
            raise AssertionError
        specs = (P(), P("data"))
        mapped = jax.shard_map(grad_fn, mesh=mesh, in_specs=specs, out_specs=(P(), P()))
        same(bk_jax.export_step(jax.jit(mapped, in_shardings=ins))(w, x), ins)

        mesh, ins = shardings(AxisType.Explicit)
        with jax.set_mesh(mesh):
            same(bk_jax.export_step(jax.jit(grad_fn, in_shardings=ins))(w, x), ins)
        """,
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )


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
