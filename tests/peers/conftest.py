"""Tests that need libraries of `.venv-peers-jax`; `make test-peers` runs them there."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

# Before Keras is imported; it writes its settings into a folder, which is not to be the user's.
os.environ["KERAS_BACKEND"] = "jax"
os.environ["KERAS_HOME"] = str(Path(sys.prefix, "keras"))

collect_ignore_glob = [] if find_spec("jax_privacy") else ["*_test.py"]
