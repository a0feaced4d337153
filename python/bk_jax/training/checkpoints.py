"""Checkpoints of the model, each with its place in the ledger.

A checkpoint is a folder that orbax writes under another name and renames when it is complete, so a
killed process leaves the previous one. It holds nothing secret, unless noise that is correlated over
steps stores arrays; the ledger is a separate file.
"""

from __future__ import annotations

import collections
import contextlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bk_jax._extras import require
from bk_jax.privacy.durable import check_regular
from bk_jax.training.canaries import Watched

Keys = tuple[str, ...]  # the path to an array
KEPT = 2  # the last one, and the one before in case of a power loss during the write
CANARIES = "canaries"  # the part of a checkpoint for an audit
PLACE_LIMIT = 2**16  # bytes of two numbers in JSON, with room to spare


def place_of_latest(folder: Path) -> Mapping[str, Any] | None:
    """What `Ledger.checkpoint()` returned for the newest checkpoint; changes nothing on disk."""
    if not folder.exists():
        return None
    ocp = require("orbax.checkpoint", "orbax-checkpoint")
    with _manager(folder) as manager:
        latest = manager.latest_step()
        if latest is None:
            return None
        with _reading(folder / str(latest)) as checkpoint:
            check_regular((checkpoint / "ledger" / "metadata").stat(), PLACE_LIMIT)
            only_place = ocp.args.Composite(ledger=ocp.args.JsonRestore())
            place: Mapping[str, Any] = manager.restore(latest, args=only_place)["ledger"]
    return place


class Checkpoints:
    """The checkpoints of a run. Only the process that holds the run's ledger makes them."""

    def __init__(self, folder: Path):
        self._ocp = require("orbax.checkpoint", "orbax-checkpoint")
        self._folder = folder
        self._manager = _manager(
            folder,
            max_to_keep=KEPT,
            enable_async_checkpointing=False,  # arrays are donated to the next step
            cleanup_tmp_directories=True,  # left behind by a killed process
        )

    def save(self, state: Any, place: Mapping[str, Any], watched: Watched | None = None) -> None:
        """Writes a checkpoint, unless this step already has one; `watched` is an audit's."""
        _check_names(state)
        if self._manager.latest_step() == place["steps"]:
            return
        args = self._ocp.args
        items = {"state": args.StandardSave(state), "ledger": args.JsonSave(dict(place))}
        if watched is not None and len(watched.rows):
            items[CANARIES] = args.StandardSave(watched._asdict())
        self._manager.save(place["steps"], args=args.Composite(**items))

    def restore_watched(self) -> Watched | None:
        """What an audit had observed; None if the newest checkpoint was made without one."""
        latest = self._manager.latest_step()
        if latest is None or not (self._folder / str(latest) / CANARIES).exists():
            return None
        with _reading(self._folder / str(latest)):
            only = self._ocp.args.Composite(**{CANARIES: self._ocp.args.StandardRestore()})
            kept = self._manager.restore(latest, args=only)[CANARIES]
            return Watched(np.asarray(kept["rows"]), np.asarray(kept["unseen"]))

    def restore(self, like: Any) -> Any:
        """The newest state, with the shapes, types and shardings of `like`; else `like`."""
        _check_names(like)
        latest = self._manager.latest_step()
        if latest is None:
            return like
        args = self._ocp.args
        shapes = jax.tree_util.tree_map(self._ocp.utils.to_shape_dtype_struct, like)
        with _reading(self._folder / str(latest)):
            saved = _shapes(self._manager.item_metadata(latest)["state"])
            if not saved:
                raise ValueError("it does not say what it holds")
        self._check(saved, _shapes(shapes))
        with _reading(self._folder / str(latest)):
            whole = args.Composite(state=args.StandardRestore(shapes))
            return self._manager.restore(latest, args=whole)["state"]

    def close(self) -> None:
        """Shuts orbax down."""
        self._manager.close()

    def _check(self, saved: Mapping[Keys, str], given: Mapping[Keys, str]) -> None:
        """The model and the optimizer must be those of the checkpoint."""
        for keys, shape in given.items():
            if saved.get(keys) != shape:
                raise self._differs(keys, saved.get(keys, "nothing"), shape)
        for keys in sorted(saved.keys() - given.keys()):
            raise self._differs(keys, saved[keys], "nothing")

    def _differs(self, keys: Keys, saved: Any, given: Any) -> ValueError:
        return ValueError(
            f"the checkpoint in {self._folder} was made with another model or optimizer: at "
            f"{'/'.join(keys)} it has {saved}, but the arguments have {given}. Pass those that the run "
            "was started with, or start a new run in another directory, whose epsilon then adds to this "
            "one's."
        )


@contextlib.contextmanager
def _reading(checkpoint: Path) -> Iterator[Path]:
    """Turns whatever goes wrong into one error; never reads devices or pipes."""
    try:
        for path in checkpoint.rglob("*"):
            if not path.is_dir():
                check_regular(path.stat(), math.inf)
        yield checkpoint
    except Exception as error:
        raise ValueError(
            f"the checkpoint {checkpoint} cannot be read ({type(error).__name__}: {error}). No step is "
            "lost to the accounting. To go on from the checkpoint before, if there is one, delete this "
            "folder and pass forfeit=True."
        ) from error


def _manager(folder: Path, **options: Any) -> Any:
    ocp = require("orbax.checkpoint", "orbax-checkpoint")
    return ocp.CheckpointManager(
        folder.resolve(),
        options=ocp.CheckpointManagerOptions(**options),
        item_handlers={
            "state": ocp.StandardCheckpointHandler(),
            "ledger": ocp.JsonCheckpointHandler(),
            CANARIES: ocp.StandardCheckpointHandler(),
        },
    )


def _shapes(tree: Any) -> dict[Keys, str]:
    """Keys -> type and shape. Orbax names tuple entries like dictionary keys: only names count."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_keys(path): f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves}


def _keys(path: Any) -> Keys:
    return tuple(jax.tree_util.keystr((entry,), simple=True) for entry in path)


def _check_names(tree: Any) -> None:
    """Orbax joins keys with dots; if two arrays share a name, it returns one of them twice."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    names = collections.Counter(".".join(_keys(path)) for path, _ in leaves)
    for name, count in names.items():
        if count > 1:
            raise ValueError(
                f"two arrays of the parameters or of the optimizer are {name!r} to orbax, which writes "
                "checkpoints: one would be lost. Rename a key that has a dot in it."
            )
