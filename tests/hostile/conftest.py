"""Fixtures of the hostile tests."""

from __future__ import annotations

import os

import pytest

from bk_jax import privacy
from hostile.runs import made_of, new_run


@pytest.fixture
def visible_keys(monkeypatch):
    """A key is a function of the secret and of the number; here it is both of them. Disks are quick."""
    monkeypatch.setattr(privacy.ledger, "_step_keys", made_of)
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def run(tmp_path):
    return new_run(tmp_path / "run")
