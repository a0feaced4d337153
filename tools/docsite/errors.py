"""The list of errors: every message of the package on one page, with its cause and its cure.

`python -m docsite.errors FOLDER` writes it.

Messages are read from the source: each `raise` of an exception with a text. A message says what is wrong
first; what it says after that is the cure. Where one sentence says both ("x must be a number, got ..."),
the cure is what it asks for. The few that leave the cure open have theirs in `CURES`.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from docsite.cures import CURES, GUESTS, ROOMS
from docsite.links import ROOT, write

PACKAGE = ROOT / "python" / "bk_jax"
# Where the cure begins: a new sentence, or an order after a semicolon or a colon.
_ORDERS = (
    "call|choose|compile|docs|give|its|jax.random|leave|make|name|open_ledger|pass|pip|set|take|to"
    "|unset|use|without"
)
_CURE = re.compile(rf"(?<=[.!?])\s+(?=[A-Z`'\"{{])|(?<=[;:])\s+(?=(?:{_ORDERS})\b)")
LONGEST = 90  # characters of a message in a list of links


class Error(NamedTuple):
    """One message of the package; `{...}` stands for what is filled in."""

    module: str  # a path inside of the package
    line: int
    exception: str
    text: str

    @property
    def room(self) -> str:
        """The part of the package that it belongs to."""
        folder = self.module.split("/")[0].removesuffix(".py")
        return GUESTS.get(folder, folder)

    @property
    def anchor(self) -> str:
        """A name for links that stays while the message does."""
        return "e" + hashlib.sha256(f"{self.room}{self.text}".encode()).hexdigest()[:8]


def short(text: str) -> str:
    """The beginning of a message, for a link."""
    first = " ".join(text.replace("`", "").split())
    return plain(first if len(first) <= LONGEST else first[: LONGEST - 1] + "…")


@functools.cache
def every_error() -> tuple[Error, ...]:
    """All messages, each text once in a room, in the order of the files."""
    found: dict[tuple[str, str], Error] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        for error in _errors_of(ast.parse(path.read_text()), module):
            found.setdefault((error.room, error.text), error)
    return tuple(found.values())


def _errors_of(tree: ast.Module, module: str) -> Iterator[Error]:
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            name = ast.unparse(node.exc.func).split(".")[-1]
            for text in _texts(node.exc.args[0], constants):
                yield Error(module, node.lineno, name, text)


def _texts(node: ast.expr, constants: dict[str, ast.expr]) -> Iterator[str]:
    """The texts that an expression may give; nothing if it is made elsewhere."""
    if isinstance(node, ast.IfExp):
        yield from _texts(node.body, constants)
        yield from _texts(node.orelse, constants)
    elif isinstance(node, ast.Name) and node.id in constants:
        yield from _texts(constants[node.id], constants)
    else:
        text = _template(node)
        if re.search(r"[a-z]{3,} \w+", re.sub(r"\{[^}]*\}", "", text)):
            yield text


def _template(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(value) for value in node.values)
    if isinstance(node, ast.FormattedValue):
        return "{" + ast.unparse(node.value).split("(")[-1].rstrip(")").split(".")[-1] + "}"
    if isinstance(node, ast.BinOp):
        return _template(node.left) + _template(node.right)
    return "{...}"


def errors_in(value: Any) -> list[Error]:
    """The messages whose `raise` stands in the source of a function or class."""
    try:
        lines, first = inspect.getsourcelines(value)
        path = Path(inspect.getsourcefile(value) or "").resolve()
    except (OSError, TypeError):
        return []
    if not path.is_relative_to(PACKAGE):
        return []
    module = path.relative_to(PACKAGE).as_posix()
    inside = range(first, first + len(lines))
    return [e for e in every_error() if e.module == module and e.line in inside]


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
    count = len(every_error())
    head = (
        f"All {count} messages of the package, read from its source when this page was built.\n"
        "`{...}` stands for what is filled in. Search for words of yours that are not names or numbers."
    )
    parts = ["# Errors, with cause and cure", head]
    for room in [*ROOMS, *sorted(rooms.keys() - ROOMS.keys())]:
        title = ROOMS.get(room, f"`{room}`")
        parts += [f"(of-{room})=\n## {title}", *map(_entry, rooms.get(room, []))]
    return "\n\n".join([*parts, ""])


def _entry(error: Error) -> str:
    cause, cure = cause_and_cure(error)
    return "\n".join(
        [
            f"({error.anchor})=",
            f":::{{dropdown}} {error.exception}: {short(error.text)}",
            ":class-container: bk-error",
            "",
            f"**Cause.** {plain(cause)}",
            "",
            f"**Cure.** {plain(cure)}",
            "",
            f"Raised in `{error.module}`.",
            ":::",
        ]
    )


def plain(text: str) -> str:
    """Text that Markdown leaves as it is."""
    pieces = re.split(r"(`[^`]+`)", " ".join(text.split()))
    special = re.compile(r"([\\`*_{}\[\]<>#|$~])")
    return "".join(p if p[:1] == "`" and len(p) > 1 else special.sub(r"\\\1", p) for p in pieces)


def main() -> None:
    write(Path(sys.argv[1], "errors.md"), page().encode())


if __name__ == "__main__":
    main()
