"""The list of errors: every message of the package on one page, with its cause and its cure.

`python -m docsite.errors FOLDER` writes it.

Messages are read from the source (`docsite.messages`). A message says what is wrong first; what it says
after that is the cure. Where one sentence says both ("x must be a number, got ..."), the cure is what it
asks for, or better words in `CURES`, which has those of messages that leave the cure open, too. What is
not in the Python source, or is put together there, stands in `docsite.elsewhere`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from docsite import elsewhere
from docsite.cures import CURES
from docsite.links import write
from docsite.messages import LOGGED, Error, every_error
from docsite.rooms import ROOMS

# Where the cure begins: a new sentence, or an order after a semicolon or a colon.
_ORDERS = (
    "call|choose|compile|docs|give|its|jax.random|leave|make|name|open_ledger|pass|pip|set|take|to"
    "|unset|use|without"
)
_CURE = re.compile(rf"(?<=[.!?])\s+(?=[A-Z`'\"{{])|(?<=[;:])\s+(?=(?:{_ORDERS})\b)")
LONGEST = 90  # characters of a message in a list of links


def short(text: str) -> str:
    """The beginning of a message, for a link."""
    first = " ".join(text.replace("`", "").split())
    return plain(first if len(first) <= LONGEST else first[:LONGEST].rsplit(" ", 1)[0] + " …")


def cause_and_cure(error: Error) -> tuple[str, str]:
    """What is wrong, and what to do; the cure is empty if nobody wrote one."""
    for beginning, cure in CURES.items():
        if error.text.startswith(beginning):
            return error.text, cure
    parts = _CURE.split(error.text.strip(), maxsplit=1)
    if len(parts) > 1:
        return parts[0].rstrip(";:") + ("." if parts[0][-1] in ";:" else ""), _sentence(parts[1])
    if re.search(r"\b(must|takes?|needs?|wants|expects?|expected)\b", error.text):
        asked = re.split(r"[,;] (?:but )?got\b", error.text)[0].rstrip(".")
        return error.text, f"Give what it asks for: {asked}."
    return error.text, ""


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:].rstrip(".") + "."


def without_cure() -> list[Error]:
    """The messages for which neither the text nor `CURES` says what to do."""
    return [error for error in every_error() if not cause_and_cure(error)[1]]


def page() -> str:
    """The page, a section for each room."""
    rooms: dict[str, list[Error]] = {}
    for error in every_error():
        rooms.setdefault(error.room, []).append(error)
    others = sum(len(found) for _, found in elsewhere.SECTIONS.values())
    parts = [
        "# Errors, with cause and cure",
        f"Every message of the package: {len(every_error())} exceptions, warnings and lines for the "
        f"logger, read from the source, and {others} that custom calls and `bk-hlo lint` write. "
        "`{word}` stands for a name or number of yours: leave those out when you search this page.",
    ]
    for room in [*ROOMS, *sorted(rooms.keys() - ROOMS.keys())]:
        title = ROOMS.get(room, f"`{room}`")
        parts += [f"(of-{room})=\n## {title}", *map(_entry, rooms.get(room, []))]
    for name, (title, found) in elsewhere.SECTIONS.items():
        parts += [f"(of-{name})=\n## {title}", *map(_other_entry, found)]
    return "\n\n".join([*parts, ""])


def _entry(error: Error) -> str:
    cause, cure = cause_and_cure(error)
    verb = "Written" if error.exception == LOGGED else "Raised"
    where = f"{verb} in `{error.module}`."
    dropdown = _dropdown(
        f"{error.exception}: {short(error.text)}", plain(cause), plain(cure), where
    )
    return f"({error.anchor})=\n{dropdown}"


def _other_entry(other: elsewhere.Other) -> str:
    return _dropdown(f"{other.kind}: {short(other.text)}", other.cause, other.cure)


def _dropdown(title: str, cause: str, cure: str, where: str = "") -> str:
    lines = [
        f":::{{dropdown}} {title}",
        ":class-container: bk-error",
        "",
        f"**Cause.** {cause}",
        "",
    ]
    return "\n".join([*lines, f"**Cure.** {cure}", "", *([where] if where else []), ":::"])


def plain(text: str) -> str:
    """Text that Markdown leaves as it is."""
    pieces = re.split(r"(`[^`]+`)", " ".join(text.split()))
    special = re.compile(r"([\\`*_{}\[\]<>#|$~])")
    return "".join(p if p[:1] == "`" and len(p) > 1 else special.sub(r"\\\1", p) for p in pieces)


def main() -> None:
    write(Path(sys.argv[1], "errors.md"), page().encode())


if __name__ == "__main__":
    main()
