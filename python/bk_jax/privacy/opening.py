"""What must hold before a ledger opens: a new one, one that continues, or a copy that forks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

import bk_jax.random
from bk_jax.privacy import checks
from bk_jax.privacy.correlated_plan import CorrelatedPlan
from bk_jax.privacy.ledger_file import LedgerFile, create_file
from bk_jax.privacy.place import Place
from bk_jax.privacy.plans import Plan, to_fields
from bk_jax.privacy.record import LedgerError, Record, new_name

Checkpoint = Mapping[str, Any]


def start(path: Path, plan: Plan | None, key: Any) -> LedgerFile:
    """A new ledger, on disk before anything is taken from it."""
    if plan is None:
        raise LedgerError(f"there is no ledger at {path}; a new one needs a plan.")
    if not path.parent.is_dir():
        raise LedgerError(f"there is no folder {path.parent} for a new ledger; make it first.")
    secret = bk_jax.random.key() if key is None else key
    if not bk_jax.random.is_chacha(secret):
        raise TypeError(
            f"key must be a key of bk_jax.random, with 256 bits, got {secret.dtype}. Leave it out to "
            "get one from the operating system."
        )
    words = tuple(int(word) for word in np.asarray(jax.random.key_data(secret)))

    def first_record(place: Place) -> Record:
        return Record(serial=0, name=new_name(), steps=0, key=words, plan=plan, place=place)

    return create_file(path, first_record)


def check_nothing_to_continue(path: Path, checkpoint: Checkpoint | None, fork: bool) -> None:
    """A new ledger has no past."""
    if checkpoint is not None:
        raise LedgerError(
            f"there is no ledger at {path}, but a checkpoint of one was given. What was spent after the "
            "checkpoint is known to the ledger alone: copy that file along with the checkpoint."
        )
    if fork:
        raise LedgerError(f"there is no ledger at {path} to fork; leave fork out to start one.")


def check_place(file: LedgerFile) -> None:
    """A record continues only in the file that it was written for."""
    path, written = file.path, file.record.place
    if written is None:
        raise LedgerError(
            f"{path} is of an earlier version of bk_jax, which noted neither where a ledger is nor a "
            "checksum. Pass fork=True to go on with its steps counted and with new keys."
        )
    if not written.is_file_of(file.place):
        raise LedgerError(
            f"{path} is a copy of a ledger that was written as {written.path}. If both went on, they "
            "would use the same keys. Go on with the original; or pass fork=True, also if the original "
            "was moved here from another disk or machine, or restored from a backup: the steps on "
            "record stay counted, and the keys are new. What the original takes from now on, or took "
            "after the copy was made, is not counted here."
        )


def check_fork(path: Path, record: Record) -> None:
    """Correlated noise needs the draws of earlier steps, whose keys a fork gives up."""
    if record.steps and isinstance(record.plan, CorrelatedPlan):
        raise LedgerError(
            f"{path} has {record.steps} steps whose noise is correlated with that of later steps, and a "
            "fork has new keys: it could not make that noise. Go on with the original file, where it is."
        )


def check_plan(path: Path, record: Record, plan: Plan | None) -> None:
    """Everything spent must have been spent under one plan."""
    if plan is not None and plan != record.plan:
        saved, new = to_fields(record.plan), to_fields(plan)
        names = [k for k in saved | new if saved.get(k) != new.get(k)]
        differing = [f"{k}: {saved.get(k)} -> {new.get(k)}" for k in names]
        raise LedgerError(
            f"the plan differs from the one that {path} was started with ({', '.join(differing)}). What "
            "has been spent was spent under that plan: leave plan out to go on with it."
        )


def check_checkpoint(
    path: Path, record: Record, checkpoint: Checkpoint | None, forfeit: bool
) -> None:
    """The model must be where the ledger is, or its owner gives up the steps in between."""
    reached = 0 if checkpoint is None else _steps_at(path, record, checkpoint)
    if reached > record.steps:
        raise LedgerError(
            f"{path} has {record.steps} steps on record, but the checkpoint was made at step {reached}: "
            "the file is an old copy, and its next keys have been used. Restore the newest one."
        )
    if reached < record.steps and not forfeit:
        made = f"the checkpoint was made at step {reached}"
        made = "no checkpoint was given" if checkpoint is None else made
        raise LedgerError(
            f"{path} has {record.steps} steps on record, but {made}. The steps in between are spent and "
            "their keys used: pass forfeit=True to go on without them, or start a new ledger elsewhere, "
            "whose epsilon then adds to this one's."
        )


def _steps_at(path: Path, record: Record, checkpoint: Checkpoint) -> int:
    """The steps of this ledger, or of one it was forked from, when the checkpoint was made."""
    try:
        name, steps = (
            checks.whole_number(field, checkpoint[field], 0) for field in ("ledger", "steps")
        )
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerError(
            f"checkpoint must be what Ledger.checkpoint() returned, got {checkpoint!r}."
        ) from error
    if name == record.name:
        return steps
    for fork in record.forks:
        if name == fork.name and steps <= fork.steps:
            return steps
        if name == fork.name:
            raise LedgerError(
                f"the checkpoint was made at step {steps} of the run that {path} left at step "
                f"{fork.steps}: it is of the other branch. Take one from before, or of this branch."
            )
    raise LedgerError(f"the checkpoint belongs to another ledger than {path}.")
