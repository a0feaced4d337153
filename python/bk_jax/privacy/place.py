"""Where a file is: enough to tell a file from its copy, whatever their names.

| what happens to a file | file system, inode, generation |
|---|---|
| rewritten in place, renamed, its folder moved on the same file system, a hard link | stay |
| copied, moved to another file system, restored from a backup, deleted and written again | change |

The generation distinguishes two files that had the same inode one after the other; file systems
without generations (tmpfs, NFS) report 0. Copying a disk image copies all three.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import struct
from pathlib import Path

from bk_jax.privacy import checks

FS_IOC_GETVERSION = 0x80087601  # from linux/fs.h: the generation of an inode
STEPS = "user.bk_jax.steps"  # an extended attribute; `cp` into the file does not change it


@dataclasses.dataclass(frozen=True)
class Place:
    """The path of a file, for people, and its identity, for comparison."""

    path: str
    filesystem: int
    inode: int
    generation: int

    def __post_init__(self) -> None:
        if not isinstance(self.path, str):
            raise TypeError(f"path must be text, got {self.path!r}.")
        for name in ("filesystem", "inode", "generation"):
            checks.whole_number(name, getattr(self, name), 0)

    def is_file_of(self, other: Place) -> bool:
        """Whether both are the same file, whatever the paths."""
        return dataclasses.replace(self, path=other.path) == other


def place_of(path: Path, descriptor: int) -> Place:
    """The place of an open file."""
    return Place(
        path=str(path),
        filesystem=os.fstatvfs(descriptor).f_fsid,
        inode=os.fstat(descriptor).st_ino,
        generation=_generation(descriptor),
    )


def _generation(descriptor: int) -> int:
    try:
        answer = fcntl.ioctl(descriptor, FS_IOC_GETVERSION, bytes(8))
    except OSError:
        return 0
    generation: int = struct.unpack("=I", answer[:4])[0]
    return generation


def mark_steps(descriptor: int, steps: int) -> None:
    """Also stores the steps outside the file's content, where the file system can."""
    with contextlib.suppress(OSError):
        os.setxattr(descriptor, STEPS, b"%d" % steps)


def marked_steps(descriptor: int) -> int:
    """What `mark_steps` stored, or 0; exceeds the content's count if old content was put back."""
    try:
        return max(0, int(os.getxattr(descriptor, STEPS)))
    except (OSError, ValueError):
        return 0
