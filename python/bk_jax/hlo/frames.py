"""Where instructions come from: XLA's table of stack frames."""

from __future__ import annotations

from typing import NamedTuple

from bk_jax.hlo.wire import fields, message, number, text


class Frames(NamedTuple):
    """Where instructions come from: frames are `(location, parent)`, numbers start at 1."""

    files: list[str]
    locations: list[tuple[int, int]]
    frames: list[tuple[int, int]]

    def source(self, frame: int) -> str:
        """`file:line` of the innermost frame, or nothing."""
        if not 0 < frame <= len(self.frames):
            return ""
        location = self.frames[frame - 1][0]
        if not 0 < location <= len(self.locations):
            return ""
        file, line = self.locations[location - 1]
        return f"{self.files[file - 1]}:{line}" if 0 < file <= len(self.files) else ""


NO_FRAMES = Frames([], [], [])


def read_frames(data: bytes) -> Frames:
    """From a serialized `StackFrameIndexProto`."""
    found = Frames([], [], [])
    for key, value in fields(data):
        if key == 1:
            found.files.append(text(value))
        elif key == 3:
            found.locations.append((last(message(value), 1), last(message(value), 3)))
        elif key == 4:
            found.frames.append((last(message(value), 1), last(message(value), 2)))
    return found


def last(data: bytes, wanted: int) -> int:
    """A number among the fields of a message, the last one of several, or 0."""
    values = [number(value) for key, value in fields(data) if key == wanted]
    return values[-1] if values else 0
