"""A small file that is always whole: written beside, flushed to the disk, then put in place."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def write_durably(path: Path, text: str) -> None:
    """Replaces the file's content; when this returns, the new content survives a crash.

    A crash in between leaves the old content or the new one, never a mixture. Only the owner may
    read the file.
    """
    beside = path.with_name(path.name + ".new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    """Makes the new name of a file survive a crash as well."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Lock:
    """Held by one process at a time, and given back when that process ends, however it ends."""

    def __init__(self, path: Path):
        self._path = path.with_name(path.name + ".lock")
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """Whether the lock is now held; does not wait."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Gives the lock back. Its file stays, or two processes could hold locks on two files."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
