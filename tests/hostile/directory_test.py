"""The other files of a run: what cannot be read is named, with what to do, and never waited for."""

from __future__ import annotations

import contextlib
import json
import os
import shutil

import numpy as np
import pytest

from bk_jax.training import history
from bk_jax.training.checkpoints import Checkpoints, place_of_latest

# One array: tensorstore reads several at once, and the second failure would find no listener.
STATE = {"w": np.arange(4, dtype=np.float32)}
UNREADABLE = r"the checkpoint .*/6 cannot be read \(.*delete this folder and pass forfeit=True"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two checkpoints, of steps 4 and 6."""
    folder = tmp_path_factory.mktemp("saved")
    with contextlib.closing(Checkpoints(folder)) as checkpoints:
        for step in (4, 6):
            checkpoints.save(STATE, {"ledger": 7, "steps": step})
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "checkpoints")


def restored(folder):
    with contextlib.closing(Checkpoints(folder)) as checkpoints:
        return checkpoints.restore(STATE)


def emptied(path):
    path.write_bytes(b"")


def garbled(path):
    path.write_bytes(b"\xff[[[")


def deep(path):
    path.write_bytes(b"[" * 10_000)


def lost(path):
    path.unlink()


def device(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def huge(path):
    os.truncate(path, 2**36)


# --- checkpoints ----------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", [emptied, garbled, deep, lost, device, pipe, huge])
def test_a_checkpoint_whose_place_cannot_be_read_is_named(folder, attack):
    attack(folder / "6" / "ledger" / "metadata")
    with pytest.raises(ValueError, match=UNREADABLE):
        place_of_latest(folder)


@pytest.mark.parametrize("attack", [emptied, garbled, lost, device, pipe])
@pytest.mark.parametrize("file", ["_METADATA", "manifest.ocdbt"])
def test_a_checkpoint_whose_state_cannot_be_read_is_named(folder, attack, file):
    attack(folder / "6" / "state" / file)
    with pytest.raises(ValueError, match=UNREADABLE):
        restored(folder)


def test_without_the_newest_the_one_before_is_there(folder):
    garbled(folder / "6" / "ledger" / "metadata")
    shutil.rmtree(folder / "6")
    assert place_of_latest(folder) == {"ledger": 7, "steps": 4}
    np.testing.assert_array_equal(restored(folder)["w"], STATE["w"])


# --- history --------------------------------------------------------------------------------------

POINT = history.Point(3, 0.5, 10.0, {"accuracy": 0.5}, float("nan"), 0.25, 0)


def test_points_come_back(tmp_path):
    history.save(tmp_path / "history.json", [POINT])
    (point,) = history.load(tmp_path / "history.json", 3)
    assert repr(point) == repr(POINT)


@pytest.mark.parametrize("attack", [emptied, garbled, deep, device, pipe, huge])
def test_a_history_that_cannot_be_read_is_named(tmp_path, attack):
    path = tmp_path / "history.json"
    history.save(path, [POINT])
    attack(path)
    with pytest.raises(ValueError, match=r"is not a history that fit wrote .* move it away"):
        history.load(path, 3)


@pytest.mark.parametrize(
    "change",
    [
        {"step": "3"},
        {"step": [3]},
        {"metrics": 1},
        {"metrics": {"a": "b"}},
        {"loss": "x"},
        {"y": 1},
    ],
)
def test_points_of_something_else_than_numbers_are_refused(tmp_path, change):
    path = tmp_path / "history.json"
    history.save(path, [POINT])
    content = json.loads(path.read_text())
    content["points"][0] |= change
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="is not a history that fit wrote"):
        history.load(path, 3)
