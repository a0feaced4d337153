"""Two texts that come with Python: public docstrings, and the topics of `help()` to be kept private.

A text is bytes. A window is a row of `length` of them, its end filled with zeros where the text ends.
"""

from __future__ import annotations

import ast
import importlib
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

END = 0  # fills the last window of a text; no text has this byte
HELD_OUT_EVERY = 8  # of the topics in alphabetical order
SKIPPED = ("test", "tests", "idlelib", "lib2to3", "site-packages", "pydoc_data")
SKIPPED_MODULES = ("pdb.py",)  # its help is one of the topics

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Windows(NamedTuple):
    """Rows `[n, length]` of bytes, and which topic each is from."""

    rows: np.ndarray
    topics: np.ndarray


# --- the public text ------------------------------------------------------------------------------


def modules() -> list[Path]:
    """The Python files of the standard library, without its tests."""
    root = Path(sysconfig.get_path("stdlib"))
    files = [*root.glob("*.py"), *root.glob("*/*.py"), *root.glob("*/*/*.py")]
    parts = {file: file.relative_to(root).parts for file in files}
    return sorted(file for file in files if not set(parts[file]) & {*SKIPPED, *SKIPPED_MODULES})


def docstrings(source: str) -> Iterator[str]:
    """What a module and its classes and functions say of themselves."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield text


def public_text(files: Sequence[Path] | None = None) -> bytes:
    """All docstrings of the files, by default of the standard library."""
    sources = (file.read_text("utf-8", "replace") for file in files or modules())
    texts = (text for source in sources for text in docstrings(source))
    return "\n\n".join(texts).replace("\0", "").encode()


# --- the private text -----------------------------------------------------------------------------


def topics() -> dict[str, str]:
    """What Python's `help()` says about its topics."""
    return dict(importlib.import_module("pydoc_data.topics").topics)


def without_repetitions(texts: Mapping[str, str]) -> dict[str, str]:
    """Each paragraph once, where it comes first; whole sections of topics are in others again.

    A paragraph in two windows would have two windows' influence, and one in a held-out topic would
    have been learned from.
    """
    seen: set[str] = set()
    kept: dict[str, str] = {}
    for name in sorted(texts):
        paragraphs = {" ".join(text.split()): text for text in texts[name].split("\n\n")}
        new = [text for words, text in paragraphs.items() if words and words not in seen]
        seen.update(paragraphs)
        if new:
            kept[name] = "\n\n".join(new)
    return kept


def held_out_names(texts: Mapping[str, str]) -> list[str]:
    """Which topics are never learned from; their text has no say in it."""
    return sorted(texts)[::HELD_OUT_EVERY]


def private_windows(texts: Mapping[str, str], length: int) -> tuple[Windows, Windows]:
    """Windows to learn from, and those of the held-out topics."""
    held_out = held_out_names(texts)
    learned = [name for name in sorted(texts) if name not in held_out]
    return tuple(
        windows_of({name: texts[name] for name in part}, length) for part in (learned, held_out)
    )


# --- windows --------------------------------------------------------------------------------------


def windows(text: bytes, length: int) -> np.ndarray:
    """The text as rows of `length` bytes, each byte in one of them."""
    rows = -(-len(text) // length)
    padded = text.ljust(rows * length, bytes([END]))
    return np.frombuffer(padded, np.uint8).reshape(rows, length).astype(np.int32)


def windows_of(texts: Mapping[str, str], length: int) -> Windows:
    """The windows of every text; none has bytes of two."""
    rows = {name: windows(text.encode(), length) for name, text in texts.items()}
    names = [name for name in rows for _ in rows[name]]
    return Windows(np.concatenate(list(rows.values())), np.asarray(names))
