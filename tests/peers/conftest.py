"""Tests that need libraries of `.venv-peers-jax`; `make test-peers` runs them there."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

# Before Keras is imported; it writes its settings into a folder, which is not to be the user's.
os.environ["KERAS_BACKEND"] = "jax"
os.environ["KERAS_HOME"] = str(Path(sys.prefix, "keras"))

collect_ignore_glob = [] if find_spec("jax_privacy") else ["*_test.py"]


@pytest.fixture
def private(tmp_path):
    """Makes a model of Keras private, with the ledger of this test."""
    from support.keras_models import WHOLE, made

    import bk_jax

    def make(model=None, plan=WHOLE, **arguments):
        arguments = {"ledger": tmp_path / "run.ledger", "plan": plan, **arguments}
        return bk_jax.keras.make_private(made() if model is None else model, **arguments)

    return make
