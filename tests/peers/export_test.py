"""A private step in a file: written by one process, run by another. Serialisation needs flatbuffers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.process import run_python

import bk_jax

LOAD = """
    import os, pathlib
    import jax, numpy as np
    import bk_jax

    bk_jax.register_custom_calls()
    folder = pathlib.Path(os.environ["FOLDER"])
    step = jax.export.deserialize(bytearray((folder / "step").read_bytes()))
    arrays = np.load(folder / "arrays.npz")
    value, grads = step.call({"w": arrays["w"]}, arrays["x"], arrays["key"])
    np.testing.assert_array_equal(grads["w"], arrays["expected"])
"""


def step(params, x, key_data):
    key = jax.random.wrap_key_data(key_data, impl=bk_jax.random.CHACHA20)
    grad_fn = bk_jax.dp_value_and_grad(lambda p, x: jnp.sum(jnp.tanh(x @ p["w"])))
    return grad_fn(params, x, key=key)


@pytest.mark.native
def test_another_process_has_the_same_result(tmp_path):
    x, params = np.ones((8, 3), np.float32), {"w": np.ones((3, 4), np.float32)}
    key = np.asarray(jax.random.key_data(bk_jax.random.key()))
    exported = bk_jax.export_step(jax.jit(step))(params, x, key)
    (tmp_path / "step").write_bytes(exported.serialize())
    expected = jax.jit(step)(params, x, key)[1]["w"]
    np.savez(tmp_path / "arrays.npz", x=x, key=key, expected=expected, **params)
    run_python(LOAD, FOLDER=str(tmp_path))
