"""Messages of the package, read from its source: exceptions, warnings, and what goes to the logger.

A message is found where it is written: in `raise X(text)`, in `return XError(text)`, in
`warnings.warn(text, X)` and in `LOGGER.warning(text)`. Where the text comes from a function of the same
file, it is what that function returns. `{...}` stands for what is filled in.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from docsite.links import ROOT
from docsite.placeholders import placeholder
from docsite.rooms import GUESTS

PACKAGE = ROOT / "python" / "bk_jax"
LOGGED = "logger bk_jax"


class Error(NamedTuple):
    """One message of the package."""

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


@functools.cache
def trees() -> dict[str, ast.Module]:
    """The package, parsed: a tree for each path inside of it."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {p.relative_to(PACKAGE).as_posix(): ast.parse(p.read_text()) for p in paths}


@functools.cache
def every_place() -> tuple[Error, ...]:
    """All messages, as often as they stand in the source."""
    return tuple(e for module, tree in trees().items() for e in _File(module, tree).errors())


@functools.cache
def every_error() -> tuple[Error, ...]:
    """All messages, each text once in a room, in the order of the files."""
    found: dict[tuple[str, str], Error] = {}
    for error in every_place():
        found.setdefault((error.room, error.text), error)
    return tuple(found.values())


class _File:
    """One file: where it says something, and the constants and functions it takes words from."""

    def __init__(self, module: str, tree: ast.Module):
        self.module, self.tree = module, tree
        self.constants = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        self.functions = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}

    def errors(self) -> Iterator[Error]:
        for node in ast.walk(self.tree):
            for exception, value, values in _said(node):
                for text in self.texts(value, values):
                    yield Error(self.module, node.lineno, exception, text)  # type: ignore[attr-defined]
        if self.module == "audit/cause.py":  # what an AuditError ends with
            yield from self._causes()

    def _causes(self) -> Iterator[Error]:
        for value in self.constants.values():
            if _template(value).startswith("Likely cause"):
                yield Error(self.module, value.lineno, "AuditError", _template(value))
        function = self.functions["shared_cause"]
        yield from (
            Error(self.module, function.lineno, "AuditError", t) for t in self._returned(function)
        )

    def texts(self, node: ast.expr, values: list[ast.expr]) -> Iterator[str]:
        """The texts that an expression may give; nothing if it is made in another file."""
        if isinstance(node, ast.IfExp):
            yield from self.texts(node.body, values)
            yield from self.texts(node.orelse, values)
        elif isinstance(node, ast.Name) and node.id in self.constants:
            yield from self.texts(self.constants[node.id], values)
        elif isinstance(node, ast.Call) and _name(node.func) in self.functions:
            yield from self._returned(self.functions[_name(node.func)])
        else:
            text = _filled(_template(node), values)
            if re.search(r"[a-z]{3,} \w+", re.sub(r"\{[^}]*\}", "", text)):
                yield text

    def _returned(self, function: ast.FunctionDef) -> Iterator[str]:
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and isinstance(
                node.value, (ast.JoinedStr, ast.Constant)
            ):
                yield from self.texts(node.value, [])


def _said(node: ast.AST) -> Iterator[tuple[str, ast.expr, list[ast.expr]]]:
    """Exception or warning, text, and what a logger fills in, if the node says something."""
    call = node.exc if isinstance(node, ast.Raise) else getattr(node, "value", None)
    if not isinstance(call, ast.Call) or not call.args:
        return
    name, first, *more = _name(call.func), *call.args
    is_raised = isinstance(node, ast.Raise) and name[:1].isupper()
    if is_raised or (isinstance(node, ast.Return) and re.fullmatch(r"[A-Z]\w*Error", name)):
        yield name, first, []
    elif isinstance(node, ast.Expr) and ast.unparse(call.func) == "warnings.warn":
        yield _name(more[0]), first, []
    elif isinstance(node, ast.Expr) and ast.unparse(call.func) == "LOGGER.warning":
        yield LOGGED, first, more


def _name(function: ast.expr) -> str:
    """The last word of what is called."""
    return ast.unparse(function).split("(")[0].split(".")[-1]


def _template(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(value) for value in node.values)
    if isinstance(node, ast.FormattedValue):
        return "{" + placeholder(node.value) + "}"
    if isinstance(node, ast.BinOp):
        return _template(node.left) + _template(node.right)
    return "{...}"


def _filled(text: str, values: list[ast.expr]) -> str:
    """A text with %-signs, as loggers have it, with placeholders."""
    for value in values:
        text = re.sub(r"%[-.\d]*[dfgsr]", "{" + placeholder(value) + "}", text, count=1)
    return text
