"""One ledger for several processes: the first keeps it, and all get the same keys for a step.

    with privacy.open_shared_ledger("run.ledger", plan) as ledger:   # in every process
        for step in ledger: ...

Only process 0 of `jax.distributed` touches the file. It records a step on its disk and then sends
the keys to the others. If a process is gone, sending fails, so no process continues alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

import bk_jax.random
from bk_jax.ops.chacha import KEY_WORDS
from bk_jax.privacy.ledger import Ledger, Step, open_ledger
from bk_jax.privacy.plans import Plan
from bk_jax.privacy.record import LedgerError

REFUSED, GRANTED = 0, 1


def open_shared_ledger(
    path: str | os.PathLike[str],
    plan: Plan,
    *,
    checkpoint: Mapping[str, Any] | None = None,
    forfeit: bool = False,
    fork: bool = False,
    key: jax.Array | None = None,
) -> SharedLedger:
    """`open_ledger` for all processes of `jax.distributed`; all must call it at the same time.

    The arguments are those of `open_ledger`. Only those of process 0 count, except for the plan,
    which every process needs. With one process, this is `open_ledger`.

    >>> import pathlib, tempfile
    >>> from bk_jax import privacy
    >>> plan = privacy.PrivacyPlan(
    ...     num_examples=1000, batch_size=100, steps=20, delta=1e-6, noise_multiplier=1.0)
    >>> path = pathlib.Path(tempfile.mkdtemp(), "run.ledger")
    >>> with privacy.open_shared_ledger(path, plan) as ledger:  # with one process: open_ledger
    ...     print(ledger.take().number)
    0
    """
    ledger, error = None, None
    if jax.process_index() == 0:
        try:
            ledger = open_ledger(
                path, plan, checkpoint=checkpoint, forfeit=forfeit, fork=fork, key=key
            )
        except BaseException as problem:  # the others are waiting for an answer
            error = problem
    record = (ledger.checkpoint()["ledger"], ledger.steps) if ledger else (0, 0)
    name, steps = _send(error, record)
    return SharedLedger(plan, ledger, name, steps)


class SharedLedger:
    """What `open_shared_ledger` returns. Iterating takes the steps that are left.

    >>> import pathlib, tempfile
    >>> from bk_jax import privacy
    >>> plan = privacy.PrivacyPlan(
    ...     num_examples=1000, batch_size=100, steps=20, delta=1e-6, noise_multiplier=1.0)
    >>> path = pathlib.Path(tempfile.mkdtemp(), "run.ledger")
    >>> with privacy.open_shared_ledger(path, plan) as ledger:
    ...     numbers = [step.number for step in ledger]
    >>> len(numbers), ledger.steps
    (20, 20)
    """

    def __init__(self, plan: Plan, ledger: Ledger | None, name: int, steps: int):
        self.plan = plan
        self._ledger, self._name, self._steps = ledger, name, steps

    @property
    def steps(self) -> int:
        """How many steps have been paid for; also the number of the next one."""
        return self._steps

    def epsilon(self) -> float:
        """What has been spent so far, at the plan's delta."""
        return self.plan.epsilon(self.steps)

    def checkpoint(self) -> dict[str, Any]:
        """What to save with the model; the same in all processes."""
        return {"ledger": self._name, "steps": self.steps}

    def take(self) -> Step:
        """Records the next step on the disk of process 0, then hands its keys to all processes."""
        error, words = None, [0] * (1 + 2 * KEY_WORDS)
        if self._ledger is not None:
            try:
                step = self._ledger.take(self._steps)
                secrets = [step.noise_key, step.sampling_key]
                words = [
                    step.number,
                    *(int(w) for key in secrets for w in jax.random.key_data(key)),
                ]
            except BaseException as problem:  # the others are waiting for an answer
                error = problem
        number, *rest = _send(error, words)
        self._steps = number + 1
        noise, sampling = (_as_key(half) for half in (rest[:KEY_WORDS], rest[KEY_WORDS:]))
        return Step(number, noise, sampling)

    def __iter__(self) -> Iterator[Step]:
        while self.steps < self.plan.steps:
            yield self.take()

    def close(self) -> None:
        """Lets other processes open the ledger."""
        if self._ledger is not None:
            self._ledger.close()

    def __enter__(self) -> SharedLedger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _as_key(words: Sequence[int]) -> jax.Array:
    bits: Any = np.asarray(words, np.uint32)
    return jax.random.wrap_key_data(bits, impl=bk_jax.random.CHACHA20)


def _send(error: BaseException | None, words: Sequence[int]) -> list[int]:
    """The words of process 0 in all processes; if it refuses, all of them stop."""
    answer = np.asarray([REFUSED if error else GRANTED, *words], np.uint32)
    if jax.process_count() > 1:
        answer = np.asarray(multihost_utils.broadcast_one_to_all(answer))
    if error is not None:
        raise error
    if answer[0] == REFUSED:
        raise LedgerError("process 0, which keeps the ledger, refused; its own error says why.")
    return [int(word) for word in answer[1:]]
