"""Small files: always written whole, and read only if they are regular files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

# What parsing JSON that somebody else may have written can raise.
MALFORMED = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


def write_durably(path: Path, text: str) -> None:
    """Replaces the file's content; when this returns, the new content survives a crash.

    A crash in between leaves the old content or the new, never a mixture. Only the owner may read
    the file.
    """
    beside = path.with_name(path.name + ".new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Makes a file's new name survive a crash as well."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_regular(path: Path, limit: int) -> bytes:
    """The content of a file; `ValueError` if it is not a regular file or exceeds `limit` bytes."""
    with os.fdopen(open_regular(path, os.O_RDONLY, limit), "rb") as file:
        return file.read(limit)


def open_regular(path: Path, flags: int, limit: int) -> int:
    """Opens a file after checking it, since a device never ends and a pipe waits for a writer."""
    check_regular(os.stat(path), limit)
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        check_regular(os.fstat(descriptor), limit)
    except ValueError:
        os.close(descriptor)
        raise
    return descriptor


def check_regular(found: os.stat_result, limit: float) -> None:
    """`ValueError` if this is not a regular file, or has more than `limit` bytes."""
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"it is no regular file, but {stat.filemode(found.st_mode)}")
    if found.st_size > limit:
        raise ValueError(f"it has {found.st_size} bytes, and {limit} at most are expected")
