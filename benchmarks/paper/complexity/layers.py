"""The layer tables of configs/models, read and counted.

A layer has T tokens or pixels, a weight `d x p` (`groups` times, for a convolution), and occurs
`count` times. Kinds: dense, conv, embedding (these three are the paper's generalized linear layers),
norm, and parameter (an array that belongs to no layer).
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
MODELS = CONFIGS / "models"
LINEAR = ("dense", "conv", "embedding")
KINDS = (*LINEAR, "norm", "parameter")
KEYS = {"name", "kind", "p", "d", "T", "count", "groups", "kernel", "stride", "bias", "tied"}


@dataclasses.dataclass(frozen=True)
class Layer:
    """One row of a table; `t` is None where nothing is multiplied."""

    name: str
    kind: str
    p: int
    d: int = 1
    t: int | None = None
    count: int = 1
    groups: int = 1
    kernel: int = 1
    stride: int = 1
    bias: bool = False
    tied: bool = False  # its weight is another layer's

    @property
    def linear(self) -> bool:
        """Whether it is a generalized linear layer."""
        return self.kind in LINEAR

    @property
    def matrix(self) -> int:
        """Entries of the weight of one such layer, the paper's pd."""
        return self.groups * self.d * self.p

    @property
    def weights(self) -> int:
        """Parameters in the weights of all `count` layers, biases left out."""
        return 0 if self.tied else self.count * self.matrix

    @property
    def biases(self) -> int:
        """Parameters in their biases."""
        return self.count * self.groups * self.p if self.bias else 0


@dataclasses.dataclass(frozen=True)
class Model:
    """A model by name: its layers, and the size of the input that T is for."""

    name: str
    title: str
    layers: tuple[Layer, ...]
    tokens: int | None = None
    image: int | None = None

    def linear(self, without: Iterable[str] = ()) -> list[Layer]:
        """Its generalized linear layers, except those whose name ends in one of `without`."""
        left_out = set(without)
        return [
            layer
            for layer in self.layers
            if layer.linear and layer.name.split(".")[-1] not in left_out
        ]

    def multiplied(self, without: Iterable[str] = ()) -> list[Layer]:
        """Those that are matrix products: no lookups."""
        return [layer for layer in self.linear(without) if layer.kind != "embedding"]


@dataclasses.dataclass(frozen=True)
class Counts:
    """Parameters as the paper's table of models divides them, and the arrays that it leaves out."""

    weights: int
    biases: int
    others: int
    bare: int

    @property
    def applicable(self) -> float:
        """Percentage of weights of generalized linear layers, as the paper counts."""
        return 100 * self.weights / (self.weights + self.biases + self.others)

    @property
    def total(self) -> int:
        """All parameters."""
        return self.weights + self.biases + self.others + self.bare


def count_parameters(model: Model) -> Counts:
    """Counts what the layers hold."""
    norms = [layer for layer in model.layers if layer.kind == "norm"]
    bare = [layer for layer in model.layers if layer.kind == "parameter"]
    return Counts(
        sum(layer.weights for layer in model.linear()),
        sum(layer.biases for layer in model.linear()),
        sum(layer.weights + layer.biases for layer in norms),
        sum(layer.weights for layer in bare),
    )


def names() -> list[str]:
    """The models that have a table."""
    return sorted(path.stem for path in MODELS.glob("*.toml"))


def read(name: str, tokens: int | None = None, image: int | None = None) -> Model:
    """Reads a table, for another number of tokens or another size of image if asked.

    >>> [layer.t for layer in read("resnet18", image=512).multiplied()[:2]]
    [65536, 16384]
    """
    if name not in names():
        raise ValueError(f"there is no model {name!r}; models are {', '.join(names())}.")
    table = tomllib.loads((MODELS / f"{name}.toml").read_text())
    own_tokens, own_image = table.get("tokens"), table.get("image")
    for asked, own, what in ((tokens, own_tokens, "tokens"), (image, own_image, "image")):
        if asked is not None and own is None:
            raise ValueError(f"{name} has no {what} to change.")
    tokens, image = tokens or own_tokens, image or own_image
    scale = (image, own_image) if image else (1, 1)
    layers = tuple(_layer(name, row, tokens, scale) for row in table["layers"])
    return Model(name, table["title"], layers, tokens, image)


def _layer(model: str, row: dict[str, Any], tokens: int | None, scale: tuple[int, int]) -> Layer:
    unknown = row.keys() - KEYS
    if unknown or row.get("kind") not in KINDS:
        raise ValueError(
            f"{model}: layer {row.get('name')!r} has the kind {row.get('kind')!r} and the unknown "
            f"keys {sorted(unknown)}; kinds are {', '.join(KINDS)}, keys {', '.join(sorted(KEYS))}."
        )
    rest = {key: value for key, value in row.items() if key != "T"}
    if row["kind"] not in LINEAR:
        return Layer(**rest)
    t = row.get("T", tokens)
    if t is None:
        raise ValueError(f"{model}: layer {row['name']!r} has no T and the model no tokens.")
    return Layer(t=_scaled(model, t, scale), **rest)


def _scaled(model: str, t: int, scale: tuple[int, int]) -> int:
    """T pixels of an image of another size; a class token stays, T = 1 stays."""
    new, own = scale
    if new == own or t == 1:
        return t
    side = math.isqrt(t)
    rest = t - side**2  # the class token
    if side * new % own:
        raise ValueError(f"{model}: {side} x {side} pixels do not scale from {own} to {new}.")
    return (side * new // own) ** 2 + rest
