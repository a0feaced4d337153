"""Tests that need libraries of `.venv-peers-jax`; `make test-peers` runs them there."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("jax_privacy") else ["*_test.py"]
