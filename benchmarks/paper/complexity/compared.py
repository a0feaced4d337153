"""Every number of the paper's tables 4, 7, 8 and 10, computed from the layer tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from benchmarks.paper.complexity import layers, printed
from benchmarks.paper.complexity.layers import Layer, Model
from benchmarks.paper.complexity.modules import ghost_is_smaller
from benchmarks.paper.complexity.printed import Cell

METHODS = ("bk", "non_private", "ghost_clip", "opacus")


def add_up(rows: Iterable[Layer], of: Callable[[Layer], int]) -> int:
    """A sum over layers; a row of the table stands for `count` of them."""
    return sum(layer.count * of(layer) for layer in rows)


def ghost_space(layer: Layer) -> int:
    """Two matrices T x T."""
    return 2 * layer.t**2


def mixed_space(layer: Layer) -> int:
    """The smaller of them and a gradient."""
    return min(ghost_space(layer), layer.matrix)


# --- table 4: ResNets, layer by layer ---


STAGE_COLUMNS: dict[str, Callable[[Layer], int]] = {
    "ghost": ghost_space,
    "instantiated": lambda layer: layer.matrix,
}


def resnet_layers() -> list[Cell]:
    """One cell for every printed number, one for how often it occurs, one for what is not printed."""
    cells = []
    for name, stages in printed.read("resnet_layers").items():
        if name == "table":
            continue
        for stage, columns in stages.items():
            here = stage_layers(name, stage)
            for column, of in STAGE_COLUMNS.items():
                counts = count_values(here, of)
                cells += _stage_cells(f"{name} {stage}", column, columns[column], counts)
    return cells


def stage_layers(name: str, stage: str) -> list[Layer]:
    """The layers of a stage, as the paper counts them: without shortcuts."""
    rows = layers.read(name).multiplied(without=["shortcut"])
    return [layer for layer in rows if layer.name.split(".")[0] == stage]


def count_values(here: list[Layer], of: Callable[[Layer], int]) -> Counter[int]:
    """How often each value occurs."""
    counts: Counter[int] = Counter()
    for layer in here:
        counts[of(layer)] += layer.count
    return counts


def _stage_cells(row: str, column: str, pairs: list[Any], counts: Counter[int]) -> list[Cell]:
    cells, left = [], Counter(counts)
    for text, count in pairs:
        number, _ = printed.parse(text)
        nearest = min(left, key=lambda value: abs(value - number), default=0)
        cells.append(Cell(4, row, f"{column} {text}", text, nearest))
        cells.append(Cell(4, row, f"{column} {text} count", str(count), left.pop(nearest, 0)))
    return [*cells, Cell(4, row, f"{column} not printed", "0", left.total())]


# --- table 7: parameters ---


def parameters() -> list[Cell]:
    """Weights, biases, others and the percentage for every model."""
    cells = []
    for name, row in printed.read("parameters")["models"].items():
        counts = layers.count_parameters(layers.read(name))
        cells += [Cell(7, name, key, text, getattr(counts, key)) for key, text in row.items()]
    return cells


# --- table 8: time and space of whole models ---


def overall() -> list[Cell]:
    """Flops, numbers kept, and their ratios to Book-Keeping's."""
    data = printed.read("overall")
    cells = []
    for name, row in data["rows"].items():
        model = layers.read(row["model"], tokens=row.get("tokens"))
        without, lookups = row.get("without", ()), row.get("lookups", False)
        for half, computed in (
            ("time", paper_times(model, data["batch"], without, lookups)),
            ("space", paper_spaces(model, data["batch"], without)),
        ):
            cells += [Cell(8, name, f"{half} {m}", row[half][m], computed[m]) for m in METHODS]
            for method, text in row[f"{half}_ratio"].items():
                ratio = computed[method] / computed["bk"]
                cells.append(Cell(8, name, f"{half} ratio {method}", text, ratio))
    return cells


def paper_times(
    model: Model, batch: int, without: Iterable[str] = (), lookups: bool = False
) -> dict[str, int]:
    """The header of table 8's upper half; tied layers count once, as the table that they share."""
    products = _untied(model, without)
    counted = [layer for layer in model.linear(without) if layer.kind == "embedding"]
    tpd = add_up(products + counted * lookups, lambda x: x.t * x.matrix)
    ghost = add_up(products, _ghost_flops)
    mixed = add_up(filter(ghost_is_smaller, products), _ghost_flops)
    flops = {"bk": 6 * tpd + mixed, "non_private": 6 * tpd, "opacus": 8 * tpd}
    flops["ghost_clip"] = 10 * tpd + ghost
    return {method: batch * number for method, number in flops.items()}


def _untied(model: Model, without: Iterable[str]) -> list[Layer]:
    return [layer for layer in model.multiplied(without) if not layer.tied]


def _ghost_flops(layer: Layer) -> int:
    return 2 * layer.t**2 * layer.groups * (layer.p + layer.d)


def paper_spaces(
    model: Model, batch: int, without: Iterable[str] = (), activations: int = 1
) -> dict[str, int]:
    """What the numbers of table 8's lower half are: T (p + d), weights, and the method's own.

    The header says `3 d + p` instead, which `activations=3` gives.
    """
    products = _untied(model, without)
    weights = add_up(model.linear(without), lambda x: 0 if x.tied else x.matrix)
    kept = batch * add_up(products, lambda x: x.t * x.groups * (x.p + activations * x.d)) + weights
    return {
        "bk": kept + batch * add_up(products, mixed_space),
        "non_private": kept,
        "ghost_clip": kept + batch * add_up(products, ghost_space),
        "opacus": kept + batch * weights,
    }


# --- table 10: space of norms ---


def norm_space() -> list[Cell]:
    """Sums of what norms need, for every model, and their ratios."""
    cells = []
    for name, row in printed.read("norm_space")["models"].items():
        rows = layers.read(name).multiplied(row.get("without", ()))
        computed = norm_spaces(rows)
        cells += [Cell(10, name, key, row[key], computed[key]) for key in computed]
    return cells


def norm_spaces(rows: list[Layer]) -> Mapping[str, float]:
    """The columns of table 10."""
    mixed, ghost = add_up(rows, mixed_space), add_up(rows, ghost_space)
    instantiated = add_up(rows, lambda x: x.matrix)
    sums = {"mixed": mixed, "instantiated": instantiated, "ghost": ghost}
    return sums | {"saving": instantiated / mixed, "saving_ghost": ghost / mixed}


def all_cells() -> list[Cell]:
    """Every number that is compared."""
    return [*resnet_layers(), *parameters(), *overall(), *norm_space()]
