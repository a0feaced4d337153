"""Runs that several tests of the trainer look at."""

from __future__ import annotations

import shutil

import pytest
from support.fits import ANY_SIZE, KEY, PLAN, fit


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Directory and result of an uninterrupted run of each plan."""
    folders = {plan: tmp_path_factory.mktemp("run") for plan in (PLAN, ANY_SIZE)}
    return {plan: (path, fit(path, plan=plan, key=KEY)) for plan, path in folders.items()}


@pytest.fixture
def copied(finished, tmp_path):
    """The directory of a finished run, to be spoilt."""
    return shutil.copytree(finished[PLAN][0], tmp_path / "copy")
