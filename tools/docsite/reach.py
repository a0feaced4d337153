"""The messages that a public name may end with: its own, and those of functions that it goes through.

Nothing is run. A function "goes through" whatever it names: functions of its file, what it imports from
the package, methods of its own class, and of a class the methods that make and call an object. `LEVELS`
steps are followed; beyond that the list would be the whole package for each name.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docsite.messages import PACKAGE, Error, every_place, trees

LEVELS = 2
_MADE_AND_CALLED = ("__init__", "__new__", "__post_init__", "__call__")
Place = tuple[str, str]  # a path inside of the package, and a qualified name


@functools.cache
def _definitions() -> dict[Place, ast.AST]:
    """Functions, classes and their methods."""
    found: dict[Place, ast.AST] = {}
    for module, tree in trees().items():
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found[module, node.name] = node
            for method in node.body if isinstance(node, ast.ClassDef) else []:
                if isinstance(method, ast.FunctionDef):
                    found[module, f"{node.name}.{method.name}"] = method  # type: ignore[attr-defined]
    return found


def _file(dotted: str) -> str | None:
    """The path of a module that is imported by a name."""
    path = dotted.removeprefix("bk_jax").removeprefix(".").replace(".", "/")
    names = (f"{path}.py", f"{path}/__init__.py".removeprefix("/"))
    return next((name for name in names if name in trees()), None)


@functools.cache
def _imported(module: str) -> dict[str, Place]:
    """What names of a file stand for that come from the package; a module has an empty second part."""
    found: dict[str, Place] = {}
    for node in ast.walk(trees()[module]):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("bk_jax"):
            continue
        for alias in node.names:
            name, inside = alias.asname or alias.name, _file(f"{node.module}.{alias.name}")
            origin = _file(node.module or "")
            if inside:
                found[name] = (inside, "")
            elif origin:
                found[name] = _defined(origin, alias.name)
    return found


def _defined(module: str, name: str) -> Place:
    """Where a name of a module is defined, if it only hands it on."""
    if (module, name) in _definitions() or name not in _imported_here(module):
        return module, name
    return _imported(module)[name]


def _imported_here(module: str) -> set[str]:
    body = trees()[module].body
    return {
        a.asname or a.name for n in body if isinstance(n, ast.ImportFrom) for a in n.names
    } & set(_imported(module))


def _named(place: Place) -> Iterator[Place]:
    """Definitions of the package that stand in the source of one."""
    module, name = place
    imported = _imported(module)
    for node in ast.walk(_definitions()[place]):
        if isinstance(node, ast.Name):
            yield from _places(imported.get(node.id, (module, node.id)))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = imported.get(node.value.id)
            if node.value.id == "self":
                yield from _places((module, f"{name.split('.')[0]}.{node.attr}"))
            elif owner and not owner[1]:
                yield from _places(_defined(owner[0], node.attr))


def _places(place: Place) -> Iterator[Place]:
    """A definition; of a class, what makes and calls its objects."""
    definition = _definitions().get(place)
    if isinstance(definition, ast.ClassDef):
        makers = ((place[0], f"{place[1]}.{method}") for method in _MADE_AND_CALLED)
        yield from (maker for maker in makers if maker in _definitions())
    elif definition is not None:
        yield place


def place_of(value: Any) -> Place | None:
    """Where a function or class of the package is defined."""
    try:
        source = Path(inspect.getsourcefile(inspect.unwrap(value)) or "").resolve()
    except (TypeError, ValueError):
        return None
    if not source.is_relative_to(PACKAGE):
        return None
    place = source.relative_to(PACKAGE).as_posix(), getattr(value, "__qualname__", "")
    return place if place in _definitions() else None


def errors_of(value: Any, levels: int = LEVELS) -> list[Error]:
    """The messages of a function or class, its own first, then level by level."""
    values = inspect.getmro(value) if inspect.isclass(value) else (value,)
    found: dict[str, Error] = {}
    seen: set[Place] = set()
    level = [place for one in values if (place := place_of(one))]
    for _ in range(levels + 1):
        for here in level:
            found |= {e.anchor: e for e in _own(here) if e.anchor not in found}
        seen |= set(level)
        level = list(dict.fromkeys(p for here in level for p in _named(here) if p not in seen))
    return list(found.values())


def _own(place: Place) -> Iterator[Error]:
    """The messages between the first and the last line of a definition."""
    node: Any = _definitions()[place]
    return (
        e
        for e in every_place()
        if e.module == place[0] and node.lineno <= e.line <= node.end_lineno
    )
