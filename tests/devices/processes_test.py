"""Four processes with a device each: every kind of sharding gives what one device gives."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest
from support.process import PACKAGE, TESTS
from support.quick import FLAGS
from support.tolerance import eps

import bk_jax
from devices import four
from devices.networks import MODELS

CASES = [(name, layout) for name, layouts in four.LAYOUTS.items() for layout in layouts]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What process 0 has written when all four have ended well."""
    file = tmp_path_factory.mktemp("four") / "found.npz"
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (PACKAGE, TESTS))),
        "JAX_CHECK_TRACER_LEAKS": "0",
        "XLA_FLAGS": " ".join(FLAGS),
    }
    running = [
        subprocess.Popen(
            [sys.executable, four.__file__, str(file), str(number), port],
            env=environment, stderr=subprocess.PIPE, text=True,
        )
        for number in range(4)
    ]  # fmt: skip
    try:
        errors = [process.communicate(timeout=600)[1] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0] * 4, errors[0]
    return np.load(file)


@pytest.mark.parametrize(("name", "layout"), CASES)
def test_four_processes_give_what_one_device_gives(found, name, layout):
    """Loss, noisy gradients, losses and norms of all examples; sums are made in another order."""
    model = MODELS[name]()
    alone = jax.jit(four.private_step(model, bk_jax.random.key(four.KEY)))
    leaves = jax.tree.leaves(alone(model.params, model.batch))
    assert sum(key.startswith(f"{name} {layout} ") for key in found) == len(leaves)
    for index, leaf in enumerate(leaves):
        many, one = found[f"{name} {layout} {index}"], np.asarray(leaf)
        assert many.shape == one.shape
        scale = max(1.0, float(np.abs(one).max()))
        np.testing.assert_allclose(many, one, rtol=0, atol=64 * eps(np.float32) * scale)
