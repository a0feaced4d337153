"""Imports point down only: a room imports from itself and from the rooms below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "bk_jax"

# From the bottom up; what stands in one line does not import each other.
LAYERS = (
    ("_extras", "boxes", "checks", "first_call", "palette", "relations", "sources"),
    ("hlo", "webpage"),
    ("_compat", "paths", "prefixes"),
    ("_cuda_module", "_custom_call", "repeated", "sharding"),
    ("_native",),
    ("ops",),
    ("validate", "random", "optimizers"),
    ("scaling",),
    ("clip", "noise", "exporting"),
    ("program",),
    ("planning",),
    ("summing", "fitting", "_diagnose"),
    ("grad_fn",),
    ("api", "updates", "mechanisms"),
    ("privacy", "peft", "overhead"),
    ("sampling", "audit"),
    ("training", "interop"),
)
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def room_of(parts: tuple[str, ...]) -> str:
    return parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> Iterator[tuple[int, str]]:
    """Line and room of every import of the package, those inside functions too."""
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "bk_jax":
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bk_jax."):
            yield node.lineno, node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            yield from ((node.lineno, n[1]) for n in names if n[0] == "bk_jax" and len(n) > 1)


def violations(path: Path) -> list[str]:
    own = room_of(path.parts)
    return [
        f"{path}:{line} imports {room}, which is not below {own}"
        for line, room in imported_rooms(path)
        if room in LEVEL and room != own and LEVEL[room] >= LEVEL[own]
    ]


@pytest.mark.parametrize(
    "path", [m for m in MODULES if m.name != "__init__.py" or len(m.parts) > 1], ids=str
)
def test_imports_point_down(path):
    assert not violations(path)


def test_every_room_has_a_layer():
    rooms = {room_of(path.parts) for path in MODULES} - {"__init__"}
    assert rooms == set(LEVEL)


def test_an_import_upwards_is_found(tmp_path, monkeypatch):
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "wrong.py").write_text("def f():\n    from bk_jax.summing import norms\n")
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    (found,) = violations(Path("ops/wrong.py"))
    assert found == "ops/wrong.py:2 imports summing, which is not below ops"
