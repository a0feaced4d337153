"""A small plan, and what a ledger of it hands out and has on record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from bk_jax import privacy
from bk_jax.privacy.pages import newest
from bk_jax.privacy.record import Record

PLAN = privacy.PrivacyPlan(
    num_examples=1000, batch_size=100, steps=5, delta=1e-5, noise_multiplier=4, pld_interval=1e-3
)


def words(key: jax.Array) -> tuple[int, ...]:
    """A key, to be compared."""
    return tuple(np.asarray(jax.random.key_data(key)).tolist())


def take_all(path: Path, **options: Any) -> list[privacy.Step]:
    """All steps of the plan."""
    with privacy.open_ledger(path, PLAN, **options) as ledger:
        return list(ledger)


def record_of(path: Path) -> Record:
    """The last record in a file, without opening the ledger."""
    return newest(path, path.read_bytes())


def recorded_steps(path: Path) -> int:
    """How many steps a file has on record."""
    return record_of(path).steps
