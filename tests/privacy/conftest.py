"""Fixtures of the tests of privacy."""

from __future__ import annotations

import pytest


@pytest.fixture
def path(tmp_path):
    """Of a ledger that is not there yet."""
    return tmp_path / "run.ledger"
