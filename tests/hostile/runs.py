"""A run of a user who may be hostile: what it was handed, and what can be tried with its ledger."""

from __future__ import annotations

import contextlib
import shutil

from bk_jax import privacy

PLAN = privacy.PrivacyPlan(
    num_examples=1000, batch_size=100, steps=9, delta=1e-5, noise_multiplier=4, pld_interval=1e-3
)


def made_of(secret, number):
    return [(*secret.tolist(), int(number), use) for use in ("noise", "sampling")]


class Run:
    """A user's run: the keys that were handed out, by whichever ledger."""

    def __init__(self, path):
        self.path, self.taken = path, {}

    def take(self, ledger):
        """Takes a step: of every secret, numbers must only go up."""
        step = ledger.take()
        *secret, number, _ = step.noise_key
        before = self.taken.setdefault(tuple(secret), [])
        assert number >= len(before), "steps that were handed out are not counted"
        assert number not in before, "a key was handed out twice"
        assert ledger.steps == step.number + 1 == number + 1
        before.append(number)

    def try_to_take(self, ledger):
        """Takes a step, if the ledger agrees."""
        with contextlib.suppress(privacy.LedgerError):
            self.take(ledger)

    def try_everything(self, path):
        """What a user can try next, with the words that errors ask for; returns these errors."""
        errors = []
        for told in ({}, {"forfeit": True}, {"forfeit": True, "fork": True}, {"forfeit": True}):
            try:
                with privacy.open_ledger(path, PLAN, **told) as ledger:
                    self.take(ledger)
            except privacy.LedgerError as error:
                errors.append(str(error))
        return errors


def new_run(folder):
    """A run with two steps; beside its ledger are two copies from after the first of them."""
    folder.mkdir()
    run = Run(folder / "run.ledger")
    with privacy.open_ledger(run.path, PLAN) as ledger:
        run.take(ledger)
        (folder / "backup").write_bytes(run.path.read_bytes())
        shutil.copy2(run.path, folder / "exact_backup")
        run.take(ledger)
    return run
