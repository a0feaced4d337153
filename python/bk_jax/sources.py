"""Source lines: where something is done, in the user's own file and in the library that they call.

    model.py:31 (Block.__call__) > flax/nnx/nn/linear.py:422

Frames come innermost first. The user's own is the first that lies in no installed package, and further
in than any of ours: whoever calls `bk_jax` from further out did not write the loss there.
"""

from __future__ import annotations

import functools
import os
import sysconfig
from collections.abc import Iterable
from typing import NamedTuple

PACKAGES = ("site-packages", "dist-packages")
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STANDARD = tuple(sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "platstdlib"))


class Frame(NamedTuple):
    """A place in a file."""

    file: str
    line: int
    function: str


def describe(frames: Iterable[Frame]) -> str:
    """The user's own line and the library's, or the one that there is; empty without frames."""
    innermost = None
    for frame in frames:
        if _is_own(frame.file):
            return _with_function(frame) + (f" > {_place(innermost)}" if innermost else "")
        innermost = innermost or frame
        if frame.file.startswith(_OURS):
            break
    return _with_function(innermost) if innermost else ""


@functools.lru_cache(maxsize=4096)
def _is_own(file: str) -> bool:
    parts = file.split(os.sep)
    installed = any(name in parts for name in PACKAGES) or file.startswith(_STANDARD)
    return not (installed or file.startswith((_OURS, "<frozen ")))


def _with_function(frame: Frame) -> str:
    return f"{_place(frame)} ({frame.function})"


def _place(frame: Frame) -> str:
    return f"{_short(frame.file)}:{frame.line}"


def _short(file: str) -> str:
    """Of an installed package what comes after the folder of all packages; else from where we are."""
    parts = file.split(os.sep)
    for name in PACKAGES:
        if name in parts:
            return os.sep.join(parts[len(parts) - parts[::-1].index(name) :])
    return file.removeprefix(_here())


def _here() -> str:
    try:
        return os.getcwd() + os.sep
    except OSError:  # somebody removed the folder
        return ""
