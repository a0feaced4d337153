"""What a ledger's file has on record, without opening the ledger."""

from __future__ import annotations

from pathlib import Path

from bk_jax.privacy.pages import newest
from bk_jax.privacy.record import Record


def record_of(path: Path) -> Record:
    """The last record in a file."""
    return newest(path, path.read_bytes())


def recorded_steps(path: Path) -> int:
    """How many steps a file has on record."""
    return record_of(path).steps
