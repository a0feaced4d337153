"""The file of a ledger: locked while it is open, and checked again before every use.

The file is written in place, so it stays the same file for the whole run. The lock is on the file
itself: all its names (hard links, symbolic links, bind mounts) lead to one lock, and there is no
lock file that somebody could delete.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bk_jax.privacy.durable import flush_folder, open_regular
from bk_jax.privacy.pages import SIZE, damaged, first_pages, newest, offset_of
from bk_jax.privacy.place import Place, mark_steps, marked_steps, place_of
from bk_jax.privacy.record import LedgerError, Record


class LedgerFile:
    """A ledger's file, open and locked. Made by `open_file` and `create_file`.

    Attributes:
      path: where the file is.
      place: the path, plus what tells the file from its copies.
      record: the last record.
    """

    def __init__(self, path: Path, descriptor: int):
        self._descriptor = descriptor
        self._content = os.pread(descriptor, SIZE, 0)
        self.path, self.place = path, place_of(path, descriptor)
        record = newest(path, self._content)
        steps = min(max(record.steps, marked_steps(descriptor)), record.plan.steps)
        self.record = dataclasses.replace(record, steps=steps)

    def add_step(self) -> int:
        """Counts a step and returns its number; from then on the count survives a crash."""
        self._check()
        last = self.record
        self._write(
            dataclasses.replace(
                last, serial=last.serial + 1, steps=last.steps + 1, place=self.place
            )
        )
        self._check()
        return last.steps

    def close(self, unlock: bool = True) -> None:
        """Closes the file. A forked process must not unlock it: its parent shares the lock."""
        if self._descriptor < 0:
            return
        if unlock:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)
        self._descriptor = -1

    def _write(self, record: Record) -> None:
        page, offset = record.to_page(), offset_of(record)
        os.pwrite(self._descriptor, page, offset)
        mark_steps(self._descriptor, record.steps)
        os.fsync(self._descriptor)
        self._content = self._content[:offset] + page + self._content[offset + len(page) :]
        self.record = record

    def _check(self) -> None:
        """We must hold the lock, the path must lead to this file, and its content must be ours."""
        _lock(self.path, self._descriptor)
        _check_here(self.path, self._descriptor)
        if os.pread(self._descriptor, SIZE + 1, 0) != self._content:
            raise LedgerError(
                f"{self.path} was changed by somebody else while it was open, and its keys may have "
                "been handed out. Find out who writes to it before you open it again."
            )


def open_file(path: Path) -> LedgerFile | None:
    """The ledger's file at a path, locked; None if nothing is there."""
    try:
        descriptor = open_regular(path, os.O_RDWR, SIZE)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise damaged(path, str(error)) from error
    with _closed_on_error(descriptor):
        _lock(path, descriptor)
        _check_here(path, descriptor)
        _hide(path, descriptor)
        return LedgerFile(path, descriptor)


def create_file(
    path: Path, make_record: Callable[[Place], Record], *, replace: bool = False
) -> LedgerFile:
    """Creates a file with one record, all at once; keeps or replaces what is at the path."""
    descriptor, beside = tempfile.mkstemp(
        ".new", path.name + ".", path.parent
    )  # for the owner only
    try:
        with _closed_on_error(descriptor):
            _lock(path, descriptor)
            record = make_record(place_of(path, descriptor))
            os.pwrite(descriptor, first_pages(record), 0)
            mark_steps(descriptor, record.steps)
            os.fsync(descriptor)
            (os.replace if replace else os.link)(beside, path)
            flush_folder(path.parent)
            return LedgerFile(path, descriptor)
    except FileExistsError as error:
        raise LedgerError(f"{path} was started by another process at the same time.") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)


@contextlib.contextmanager
def _closed_on_error(descriptor: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        os.close(descriptor)
        raise


def _lock(path: Path, descriptor: int) -> None:
    """Takes the lock, or confirms that we hold it; raises if anyone else does, and never waits."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise LedgerError(
            f"{path} is open in another process, or already in this one, which hands out the same keys. "
            "End that process, or close that ledger, first."
        ) from error
    except OSError as error:
        raise LedgerError(
            f"{path} cannot be locked ({error.strerror}), so two processes could take the same keys. "
            "Keep the ledger on a file system with locks, such as a local disk."
        ) from error


def _check_here(path: Path, descriptor: int) -> None:
    """The open file must be the one that others find at its path."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.stat(path), os.fstat(descriptor)):
            return
    raise LedgerError(
        f"the file at {path} was moved, deleted or replaced while it was open: what is there now does "
        "not count with it. Put the file back, or open it where it is now."
    )


def _hide(path: Path, descriptor: int) -> None:
    """Makes the file readable only by its owner; copies often are not."""
    if not stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o077:
        return
    try:
        os.fchmod(descriptor, 0o600)
    except PermissionError as error:
        raise LedgerError(
            f"{path} holds a secret key that others may read, and it is another user's: its owner must "
            "run chmod 600 on it."
        ) from error
