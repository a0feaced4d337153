"""What goes wrong: kills, a full disk, a folder that became read-only, a clock that jumps.

Processes are forked from one that has not started JAX, so switches in shared memory reach them at any
moment. A full disk is a real one, a small tmpfs, where mounting is allowed; otherwise, and for the
read-only folder, an audit hook refuses what would write: Python announces every `open`, `mkdir` and
`rename` before it happens.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KINDS = ("kill", "full disk", "read-only", "clock", "stop")
SIZE = 48 << 20  # of the tmpfs
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink")


class Switches:
    """Shared between the process that breaks things and the one that suffers."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 16)  # anonymous: a forked process sees the same

    @property
    def clock(self) -> float:
        """Seconds that the clock is wrong."""
        offset: float = struct.unpack_from("d", self._memory, 0)[0]
        return offset

    @clock.setter
    def clock(self, offset: float) -> None:
        struct.pack_into("d", self._memory, 0, offset)

    @property
    def refused(self) -> int:
        """The error that writes meet; 0 for none."""
        number: int = struct.unpack_from("i", self._memory, 8)[0]
        return number

    @refused.setter
    def refused(self, number: int) -> None:
        struct.pack_into("i", self._memory, 8, number)


def suffer(switches: Switches, folder: Path) -> None:
    """From here on this process meets what is switched on; there is no way back."""
    true_time = time.time
    time.time = lambda: true_time() + switches.clock

    def hook(event: str, args: tuple[Any, ...]) -> None:
        number = switches.refused
        if number == 0 or not _writes(event, args):
            return
        path = os.fspath(args[1] if event == "os.rename" else args[0])
        below = folder / "checkpoints" if number == errno.EROFS else folder
        if os.fsdecode(path).startswith(str(below)):
            raise OSError(number, os.strerror(number), path)

    sys.addaudithook(hook)


def _writes(event: str, args: tuple[Any, ...]) -> bool:
    if event == "open":  # of a descriptor, the file is open already
        return isinstance(args[0], str | bytes | os.PathLike) and bool((args[2] or 0) & WRITING)
    return event in CHANGES


def is_expected(error: BaseException | None) -> bool:
    """Whether an error, or what led to it, is one of those that were switched on."""
    while error is not None:
        text = str(error)
        if any(os.strerror(number) in text for number in (errno.ENOSPC, errno.EROFS)):
            return True
        error = error.__cause__ or error.__context__
    return False


class Disk:
    """A folder, on a file system of its own if this process may mount one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.is_real = _run("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "soak", str(folder))

    @contextlib.contextmanager
    def full(self, switches: Switches) -> Iterator[None]:
        """No space is left on it."""
        ballast = self.folder / "ballast"
        if self.is_real:
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                while file.write(bytes(1 << 16)):
                    pass
        else:
            switches.refused = errno.ENOSPC
        try:
            yield
        finally:
            switches.refused = 0
            ballast.unlink(missing_ok=True)

    def close(self) -> None:
        if self.is_real:
            _run("umount", "--lazy", str(self.folder))


@contextlib.contextmanager
def read_only(switches: Switches) -> Iterator[None]:
    """Nothing can be written below the folder of checkpoints."""
    switches.refused = errno.EROFS
    try:
        yield
    finally:
        switches.refused = 0


def _run(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
