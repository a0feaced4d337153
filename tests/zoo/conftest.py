"""Other people's models; `make test-peers` runs all, where their libraries are."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

# Before Keras is imported; it writes its settings into a folder, which is not to be the user's.
os.environ["KERAS_BACKEND"] = "jax"
os.environ["KERAS_HOME"] = str(Path(sys.prefix, "keras"))

collect_ignore_glob = [] if find_spec("keras_hub") else ["*.py"]


@pytest.fixture(autouse=True)
def _keras_counts_its_layers_from_zero() -> None:
    """The names of a model's parameters are the same in any order of tests."""
    import keras

    keras.utils.clear_session()
