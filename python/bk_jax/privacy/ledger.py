"""The ledger: which steps have been paid for, on disk before their noise exists.

    with privacy.open_ledger("run.ledger", plan) as ledger:
        for step in ledger:
            batch = loader.batch(step.sampling_key)
            params = train_step(params, batch, step.noise_key)

The order is the point: a step is written to the disk, and flushed, *before* its keys are handed out. A
process that is killed at any moment has at most a step recorded that it never took; it has never taken
one that is not recorded. The keys of a step are handed out once: from the ledger's secret key and the
number of the step, which only goes up.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import bk_jax.random
from bk_jax.privacy.durable import Lock, write_durably
from bk_jax.privacy.privacy_plan import PrivacyPlan
from bk_jax.privacy.record import LedgerError, Record

NOISE, SAMPLING = 0, 1  # folded into the secret key first: two uses that have nothing in common


class Step(NamedTuple):
    """What one step needs: its number, and keys that no other step gets."""

    number: int
    noise_key: jax.Array
    sampling_key: jax.Array


def open_ledger(
    path: str | os.PathLike[str],
    plan: PrivacyPlan | None = None,
    *,
    checkpoint: Mapping[str, Any] | None = None,
    forfeit: bool = False,
    key: jax.Array | None = None,
) -> Ledger:
    """Opens the ledger of a run, or starts one, and keeps other processes out until it is closed.

    Args:
      path: the file. It holds the run's secret key and is readable by its owner only: keep it out of
        what is published. It must outlive the run's checkpoints; without it a run can not go on.
      plan: the plan; may be left out for a ledger that exists, and is refused if it is another one.
      checkpoint: what `Ledger.checkpoint()` said when the model was saved that this run goes on from.
        Needed for a ledger that has steps. If the ledger has gone further than the checkpoint, the
        steps in between have been paid for and may have been seen, so they can not be taken again.
      forfeit: go on in that case: those steps count, and the run has that many fewer left.
      key: the secret key of a new ledger, a key of `bk_jax.random`; default: a new one from the
        operating system. A key that others know makes the run not private.

    >>> import tempfile, pathlib
    >>> from bk_jax import privacy
    >>> plan = privacy.PrivacyPlan(
    ...     num_examples=100, batch_size=10, steps=3, delta=1e-3, noise_multiplier=2
    ... )
    >>> path = pathlib.Path(tempfile.mkdtemp(), "run.ledger")
    >>> with privacy.open_ledger(path, plan) as ledger:
    ...     saved = ledger.checkpoint()
    ...     print([step.number for step in ledger], f"{ledger.epsilon():.2f}")
    [0, 1, 2] 0.24
    >>> privacy.open_ledger(path, plan, checkpoint=saved)
    Traceback (most recent call last):
    bk_jax.privacy.record.LedgerError: ... has 3 steps on record, but the checkpoint was made at step 0.
    ...
    """
    path = Path(path).resolve()  # one file, one lock, whatever names lead to it
    lock = Lock(path)
    if not lock.acquire():
        raise LedgerError(
            f"{path} is open in another process, which hands out the same keys. End that process first."
        )
    try:
        record = _load(path, plan, key) if path.exists() else _start(path, plan, key, checkpoint)
        _check_checkpoint(path, record, checkpoint, forfeit)
    except BaseException:
        lock.release()
        raise
    return Ledger(path, record, lock)


class Ledger:
    """An open ledger, made by `open_ledger`. Iterating takes the steps that are left."""

    def __init__(self, path: Path, record: Record, lock: Lock):
        self._path, self._record, self._lock = path, record, lock
        self._owner: int | None = os.getpid()
        self._turn = threading.Lock()

    @property
    def plan(self) -> PrivacyPlan:
        """The plan that this ledger was started with."""
        return self._record.plan

    @property
    def steps(self) -> int:
        """How many steps have been paid for; also the number of the next one."""
        return self._record.steps

    def epsilon(self) -> float:
        """What has been spent so far, at the plan's delta."""
        return self.plan.epsilon(self.steps)

    def checkpoint(self) -> dict[str, Any]:
        """What to save beside the model: two plain integers, nothing secret."""
        return {"ledger": self._record.name, "steps": self.steps}

    def take(self, number: int | None = None) -> Step:
        """Records the next step on disk, and only then hands out its keys; threads take turns.

        Args:
          number: the number that the caller believes to be next; refused if it is not.
        """
        self._check_owner()
        with self._turn:
            self._check_next(number)
            following = self.steps
            ahead = dataclasses.replace(self._record, steps=following + 1)
            write_durably(self._path, ahead.to_json())
            self._record = ahead
        return Step(following, *_step_keys(np.asarray(ahead.key, np.uint32), np.uint32(following)))

    def _check_owner(self) -> None:
        if self._owner is None:
            raise LedgerError(f"{self._path} is closed; open_ledger opens it again.")
        if self._owner != os.getpid():
            raise LedgerError(
                f"{self._path} was opened before this process was forked, and its parent hands out "
                "the same keys. Take steps in one process only."
            )

    def _check_next(self, number: int | None) -> None:
        if number is not None and number != self.steps:
            raise LedgerError(
                f"step {number} was asked for, but step {self.steps} is next: the keys of a step are "
                "handed out once, and in order."
            )
        if self.steps >= self.plan.steps:
            raise LedgerError(
                f"all {self.plan.steps} steps of the plan are spent (epsilon {self.epsilon():.3g}). "
                "More steps need a plan that has them from the start."
            )

    def __iter__(self) -> Iterator[Step]:
        while self.steps < self.plan.steps:
            yield self.take()

    def close(self) -> None:
        """Lets other processes open the ledger."""
        self._owner = None
        self._lock.release()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise LedgerError(
            f"{self._path} can not be copied or pickled: a copy would hand out the same keys. "
            "Save Ledger.checkpoint() beside the model, and open the file again."
        )

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@jax.jit
def _step_keys(secret: jax.Array, number: jax.Array) -> list[jax.Array]:
    root = jax.random.wrap_key_data(secret, impl=bk_jax.random.CHACHA20)
    uses = [jax.random.fold_in(root, use) for use in (NOISE, SAMPLING)]
    return [jax.random.fold_in(use, number) for use in uses]


def _start(
    path: Path, plan: PrivacyPlan | None, key: Any, checkpoint: Mapping[str, Any] | None
) -> Record:
    """A new ledger, on disk before anything is taken from it."""
    if checkpoint is not None:
        raise LedgerError(
            f"there is no ledger at {path}, but a checkpoint of one was given. What was spent after the "
            "checkpoint is known to the ledger alone: copy that file along with the checkpoint."
        )
    if plan is None:
        raise LedgerError(f"there is no ledger at {path}; a new one needs a plan.")
    secret = bk_jax.random.key() if key is None else key
    if not bk_jax.random.is_chacha(secret):
        raise TypeError(
            f"key must be a key of bk_jax.random, with 256 bits, got {secret.dtype}. Leave it out to "
            "get one from the operating system."
        )
    words = tuple(int(word) for word in np.asarray(jax.random.key_data(secret)))
    record = Record(name=secrets.randbits(31), steps=0, key=words, plan=plan)
    write_durably(path, record.to_json())
    return record


def _load(path: Path, plan: PrivacyPlan | None, key: Any) -> Record:
    record = Record.from_json(path.read_text(encoding="utf-8"), path)
    if key is not None:
        raise LedgerError(f"{path} has a key already; a key can only be given to a new ledger.")
    if plan is not None and plan != record.plan:
        saved, new = dataclasses.asdict(record.plan), dataclasses.asdict(plan)
        differing = [f"{k}: {saved[k]} -> {new[k]}" for k in saved if saved[k] != new[k]]
        raise LedgerError(
            f"the plan differs from the one that {path} was started with ({', '.join(differing)}). What "
            "has been spent was spent under that plan: leave plan out to go on with it."
        )
    return record


def _check_checkpoint(
    path: Path, record: Record, checkpoint: Mapping[str, Any] | None, forfeit: bool
) -> None:
    """The model must stand where the ledger stands, or its owner gives up the steps in between."""
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


def _steps_at(path: Path, record: Record, checkpoint: Mapping[str, Any]) -> int:
    """How far this ledger was when the checkpoint was made."""
    try:
        name, steps = int(checkpoint["ledger"]), int(checkpoint["steps"])
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerError(
            f"checkpoint must be what Ledger.checkpoint() returned, got {checkpoint!r}."
        ) from error
    if name != record.name:
        raise LedgerError(f"the checkpoint belongs to another ledger than {path}.")
    return steps
