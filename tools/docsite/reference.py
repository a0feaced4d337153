"""The API reference: a page for each public module, from signatures and docstrings.

`python -m docsite.reference FOLDER` writes them.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docsite.errors import short
from docsite.links import write
from docsite.markdown import to_markdown
from docsite.public_names import MODULES, Public, doc_of, methods_of, public_names
from docsite.reach import errors_of
from docsite.rooms import GUESTS, ROOMS

FENCE = "`" * 8
LISTED = 10  # messages of one name; the others are a click away
FIRST = (  # names that a reader looks for; the others follow: functions, then classes
    "dp_value_and_grad",
    "clipped_value_and_grad",
    "DPValueAndGrad",
    "private_update",
    "plan",
    "PrivacyPlan",
    "open_ledger",
    "Ledger",
    "PoissonSampler",
    "Loader",
    "fit",
    "lora",
    "partition",
    "assert_sensitivity",
    "key",
)


def signature_text(value: Any) -> str:
    """Arguments with types and defaults; empty for what cannot be called."""
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return ""
    text = re.sub(r"'([^']*)'", r"\1", text) if "from __future__" not in text else text
    text = re.sub(r"<function ([\w.]+) at [^>]*>", r"\1", text)
    text = re.sub(r"<(?:class|object)[^>]*>", "...", text)
    text = re.sub(r"<factory>", "...", text)
    return text.replace("(self, ", "(").replace("(self)", "()")


def entry(public: Public) -> str:
    """A public name: its signature, its docstring, and its methods."""
    value = public.value
    kind = "class" if inspect.isclass(value) else "function" if callable(value) else "data"
    if inspect.isclass(value) and issubclass(value, BaseException):
        kind = "exception"
    signature = "" if kind in ("exception", "data") else signature_text(value)
    if kind == "class":
        signature = signature.removesuffix(" -> None")
    body = [to_markdown(doc_of(value)) or f"`{value}`", *_fields(value), *_methods(public)]
    return _directive(kind, public.full + signature, body + _errors(value))


def _directive(kind: str, head: str, body: list[str], fence: str = FENCE) -> str:
    return "\n".join([f"{fence}{{py:{kind}}} {head}", "", "\n\n".join(body), "", fence])


def _fields(value: Any) -> Iterator[str]:
    """The fields of a dataclass or named tuple, with types."""
    if dataclasses.is_dataclass(value):
        found = {f.name: f.type for f in dataclasses.fields(value)}
    elif hasattr(value, "_fields"):
        found = {name: value.__annotations__.get(name, "") for name in value._fields}
    else:
        return
    shown = {n: t if isinstance(t, str) else getattr(t, "__name__", t) for n, t in found.items()}
    lines = [f"`{name}` (`{kind}`)" for name, kind in shown.items() if not name.startswith("_")]
    if lines:
        yield "**Fields**: " + ", ".join(lines)


def _methods(public: Public) -> Iterator[str]:
    fence = FENCE[1:]
    for name, member in methods_of(public.value):
        doc = inspect.getdoc(member)
        if not doc:
            continue
        is_property = isinstance(member, property)
        head = f"{public.full}.{name}" + ("" if is_property else signature_text(member))
        kind = "property" if is_property else "method"
        yield _directive(kind, head, [to_markdown(doc)], fence)


def _errors(value: Any) -> list[str]:
    """The messages that a function or class may end with; the nearest ones, if there are many."""
    found = errors_of(value)
    if not found:
        return []
    lines = [f"- {e.exception}: [{short(e.text)}](../errors.md#{e.anchor})" for e in found[:LISTED]]
    if len(found) > LISTED:
        rooms = dict.fromkeys(e.room for e in found[LISTED:])
        links = ", ".join(f"[{ROOMS[room].lower()}](../errors.md#of-{room})" for room in rooms)
        lines.append(f"- {len(found) - LISTED} more, deeper inside, of: {links}")
    return ["**Errors**", "\n".join(lines)]


def page(module: str, names: list[Public]) -> str:
    """The page of one module."""
    doc = to_markdown(inspect.getdoc(importlib.import_module(module)) or "")
    first = (module.removeprefix("bk_jax").split(".")[1:2] or ["api"])[0]
    room = GUESTS.get(first, first)
    note = f"All messages of this part of the package: [errors](../errors.md#of-{room})."
    ordered = in_order(names)
    parts = [f"# {module}", doc, contents(ordered), *map(entry, ordered), "## Errors", note, ""]
    return "\n\n".join(parts)


def in_order(names: list[Public]) -> list[Public]:
    """What a reader looks for first, then functions, then classes."""

    def rank(public: Public) -> tuple[int, bool]:
        place = FIRST.index(public.name) if public.name in FIRST else len(FIRST)
        return place, inspect.isclass(public.value)

    return sorted(names, key=rank)


def contents(names: list[Public]) -> str:
    """The names of a page with the first sentence of each, as links."""
    rows = [
        f"| {{py:obj}}`{public.name} <{public.full}>` | {_first_sentence(public.value)} |"
        for public in names
    ]
    return "\n".join(["| name | what it is |", "|---|---|", *rows])


def _first_sentence(value: Any) -> str:
    paragraph = " ".join(to_markdown(doc_of(value)).split("\n\n")[0].split())
    return re.split(r"(?<=[.:])\s", paragraph, maxsplit=1)[0].rstrip(".:").replace("|", r"\|")


def index() -> str:
    """The page that lists them all."""
    rows = [f"| [`{m}`]({m}.md) | {what} |" for m, what in MODULES.items()]
    head = (
        "Every public name, with its types, an example and its errors, from the docstrings.\n"
        "Examples are tests: they run at every change."
    )
    table = "\n".join(["| module | what is in it |", "|---|---|", *rows])
    toctree = "\n".join(["```{toctree}", ":hidden:", "", *MODULES, "```"])
    return "\n\n".join(["# API reference", head, table, toctree, ""])


def main() -> None:
    folder = Path(sys.argv[1], "reference")
    pages: dict[str, list[Public]] = {}
    for public in public_names():
        pages.setdefault(public.module, []).append(public)
    for module, names in pages.items():
        write(folder / f"{module}.md", page(module, names).encode())
    write(folder / "index.md", index().encode())


if __name__ == "__main__":
    main()
