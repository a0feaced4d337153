"""The ledger: which steps have been paid for, on disk before their noise exists.

    with privacy.open_ledger("run.ledger", plan) as ledger:
        for step in ledger:
            batch = loader.batch(step.sampling_key)
            params = train_step(params, batch, step.noise_key)

The order is the point: a step is written to disk and flushed *before* its keys are handed out. A
process that is killed at any moment has at most one step on record that it never took, and has
never taken a step that is not on record. The keys of a step are handed out once. They come from the
ledger's secret key and the number of the step, which only goes up.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import bk_jax.random
from bk_jax.privacy import checks, opening
from bk_jax.privacy.ledger_file import LedgerFile, create_file, open_file
from bk_jax.privacy.plans import Plan
from bk_jax.privacy.record import LedgerError

# Folded into the secret key first, so the uses share nothing.
NOISE, SAMPLING, PARTITION = 0, 1, 2


class Step(NamedTuple):
    """What one step needs: its number, and keys that no other step gets.

    >>> import pathlib, tempfile
    >>> from bk_jax import privacy
    >>> plan = privacy.PrivacyPlan(
    ...     num_examples=1000, batch_size=100, steps=20, delta=1e-6, noise_multiplier=1.0)
    >>> path = pathlib.Path(tempfile.mkdtemp(), "run.ledger")
    >>> with privacy.open_ledger(path, plan) as ledger:
    ...     number, noise_key, sampling_key = ledger.take()
    >>> number, noise_key.dtype
    (0, key<chacha20>)
    """

    number: int
    noise_key: jax.Array
    sampling_key: jax.Array


def open_ledger(
    path: str | os.PathLike[str],
    plan: Plan | None = None,
    *,
    checkpoint: Mapping[str, Any] | None = None,
    forfeit: bool = False,
    fork: bool = False,
    key: jax.Array | None = None,
) -> Ledger:
    """Opens or starts the ledger of a run, and keeps other processes out until it is closed.

    Args:
      path: the file. It holds the run's secret key and is readable only by its owner: never publish
        it. It must outlive the run's checkpoints; a run cannot continue without it.
      plan: the plan. Optional if the ledger exists; a plan that differs from its own is refused.
      checkpoint: what `Ledger.checkpoint()` returned when the model you resume from was saved.
        Required if the ledger has steps. If the ledger has gone further than the checkpoint, the
        steps in between have been paid for and may have been seen, so they cannot be taken again.
      forfeit: continue in that case: those steps count, and the run has that many fewer left.
      fork: continue in a copy of a ledger. Copies are refused otherwise, because two copies would
        hand out the same keys. The steps on record stay counted, and all keys from here on are new.
        What the original spends after the copy is not counted here, and adds up. A ledger that was
        moved to another disk or restored from a backup is a copy; one that was renamed is not.
      key: the secret key of a new ledger, made by `bk_jax.random`; by default a new one from the
        operating system. If others know the key, the run is not private.

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
    where = Path(os.path.realpath(path))  # one file, whatever its names
    file = open_file(where)
    if file is None:
        opening.check_nothing_to_continue(where, checkpoint, fork)
        return Ledger(opening.start(where, plan, key))
    with contextlib.ExitStack() as held:
        held.callback(file.close)
        if key is not None:
            raise LedgerError(
                f"{where} has a key already; a key can only be given to a new ledger."
            )
        if not fork:
            opening.check_place(file)
        opening.check_plan(where, file.record, plan)
        opening.check_checkpoint(where, file.record, checkpoint, forfeit)
        if fork:
            opening.check_fork(where, file.record)
            return Ledger(create_file(where, file.record.forked, replace=True))
        held.pop_all()
    return Ledger(file)


class Ledger:
    """An open ledger, made by `open_ledger`. Iterating takes the steps that are left.

    >>> import pathlib, tempfile
    >>> from bk_jax import privacy
    >>> plan = privacy.PrivacyPlan(
    ...     num_examples=1000, batch_size=100, steps=20, delta=1e-6, noise_multiplier=1.0)
    >>> path = pathlib.Path(tempfile.mkdtemp(), "run.ledger")
    >>> with privacy.open_ledger(path, plan) as ledger:
    ...     step = ledger.take()
    ...     print(step.number, ledger.steps, ledger.epsilon() < plan.epsilon())
    0 1 True
    """

    def __init__(self, file: LedgerFile):
        self._file = file
        self._owner: int | None = os.getpid()
        self._turn = threading.Lock()

    @property
    def plan(self) -> Plan:
        """The plan that this ledger was started with."""
        return self._file.record.plan

    @property
    def steps(self) -> int:
        """How many steps have been paid for; also the number of the next one."""
        return self._file.record.steps

    def epsilon(self) -> float:
        """What has been spent so far, at the plan's delta."""
        return self.plan.epsilon(self.steps)

    def checkpoint(self) -> dict[str, Any]:
        """What to save with the model: two plain integers, nothing secret."""
        return {"ledger": self._file.record.name, "steps": self.steps}

    def take(self, number: int | None = None) -> Step:
        """Records the next step on disk, and only then hands out its keys; threads take turns.

        Args:
          number: the number that the caller expects to be next; refused if it is not.
        """
        bk_jax.random.refuse_tracing("Ledger.take()")
        self._check_owner()
        with self._turn:
            self._check_owner()
            self._check_next(number)
            try:
                following = self._file.add_step()
            except BaseException:  # reopening finds out how far the write got
                self._release()
                raise
        secret = np.asarray(self._file.record.key, np.uint32)
        return Step(following, *_step_keys(secret, np.uint32(following)))

    def recent_noise_keys(self, count: int) -> jax.Array:
        """The noise keys of the last `count` steps that were taken, newest first.

        For noise that is correlated over steps (`bk_jax.mechanisms`) and nothing else: such noise
        consists of the draws of earlier steps too, which are made again from their keys. Steps that
        were forfeited count as taken. Before step 0 there is no key; step 0's stands there, unused.
        """
        bk_jax.random.refuse_tracing("Ledger.recent_noise_keys()")
        self._check_owner()
        checks.whole_number("count", count, 1)
        if self.steps == 0:
            raise LedgerError(
                "no step has been taken, so no key has been handed out; take one first."
            )
        numbers = np.maximum(self.steps - 1 - np.arange(count), 0).astype(np.uint32)
        return _noise_keys(np.asarray(self._file.record.key, np.uint32), numbers)

    def partition_key(self) -> jax.Array:
        """One key for the whole run, for dealing examples into groups (`bk_jax.sampling`)."""
        bk_jax.random.refuse_tracing("Ledger.partition_key()")
        self._check_owner()
        return _partition_key(np.asarray(self._file.record.key, np.uint32))

    def _check_owner(self) -> None:
        if self._owner is None:
            raise LedgerError(f"{self._file.path} is closed; open_ledger opens it again.")
        if self._owner != os.getpid():
            raise LedgerError(
                f"{self._file.path} was opened before this process was forked, and its parent hands out "
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
        if self._owner in (None, os.getpid()):
            with self._turn:
                self._release()
        else:  # forked: the lock is the parent's, and so is the turn
            self._file.close(unlock=False)

    def _release(self) -> None:
        self._owner = None
        self._file.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise LedgerError(
            f"{self._file.path} cannot be copied or pickled: a copy would hand out the same keys. "
            "Save Ledger.checkpoint() beside the model, and open the file again."
        )

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@jax.jit
def _step_keys(secret: jax.Array, number: jax.Array) -> list[jax.Array]:
    uses = [_key_of(secret, use) for use in (NOISE, SAMPLING)]
    return [jax.random.fold_in(use, number) for use in uses]


@jax.jit
def _noise_keys(secret: jax.Array, numbers: jax.Array) -> jax.Array:
    return jax.vmap(lambda number: jax.random.fold_in(_key_of(secret, NOISE), number))(numbers)


@jax.jit
def _partition_key(secret: jax.Array) -> jax.Array:
    return _key_of(secret, PARTITION)


def _key_of(secret: jax.Array, use: int) -> jax.Array:
    root = jax.random.wrap_key_data(secret, impl=bk_jax.random.CHACHA20)
    return jax.random.fold_in(root, use)
