"""Writes the layer tables of configs/models: what each published model is made of.

    python tools/layer_tables.py            writes the files
    python tools/layer_tables.py --check    fails if a file differs from what would be written

The files are what everything else reads; this program only spares typing them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from published_models import Layer, Layers, crossvits, images, perceptrons, texts

FOLDER = Path(__file__).resolve().parents[1] / "configs" / "models"


def merged(layers: Layers) -> list[Layer]:
    """Equal layers of one name become one with a count."""
    found: dict[Any, Layer] = {}
    for layer in layers:
        key = tuple((k, v) for k, v in layer.items() if k != "count")
        first = found.setdefault(key, {**layer, "count": 0})
        first["count"] += layer.get("count", 1)
    return list(found.values())


DEFAULTS = {"count": 1, "bias": False, "stride": 1}


def line(layer: Layer) -> str:
    """One layer as an inline table; what is a default is left out."""
    cells = {k: v for k, v in layer.items() if DEFAULTS.get(k) != v}
    text = ", ".join(f"{k} = {_value(v)}" for k, v in cells.items())
    return f"  {{ {text} }},\n"


def _value(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def document(title: str, layers: Layers, **head: int) -> str:
    """One file."""
    top = "".join(f"{k} = {v}\n" for k, v in head.items())
    rows = "".join(line(layer) for layer in merged(layers))
    return f'title = "{title}"\n{top}layers = [\n{rows}]\n'


def documents() -> dict[str, str]:
    """All files by name."""
    out = {name: document(title, layers, image=224) for name, (title, layers) in images().items()}
    out |= {
        name: document(title, layers, image=240) for name, (title, layers) in crossvits().items()
    }
    out |= {name: document(title, layers, tokens=t) for name, (title, t, layers) in texts().items()}
    return out | {name: document(title, layers) for name, (title, layers) in perceptrons().items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    different = []
    for name, text in documents().items():
        path = FOLDER / f"{name}.toml"
        if check and (not path.exists() or path.read_text() != text):
            different.append(path.name)
        elif not check:
            path.write_text(text)
    if different:
        sys.exit(f"{', '.join(different)} differ from what tools/layer_tables.py writes: run it.")


if __name__ == "__main__":
    main()
