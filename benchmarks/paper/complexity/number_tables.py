"""The tables of numbers: 4, 7, 8, 10, and the package's own."""

from __future__ import annotations

from collections import Counter

from benchmarks.paper.complexity import compared, layers, modules, printed
from benchmarks.paper.complexity.layers import Layer
from benchmarks.paper.complexity.markdown import by_row, markdown, notes, of_model, pair
from benchmarks.paper.complexity.package_cost import choose, model_cost
from benchmarks.paper.complexity.printed import Cell
from bk_jax.planning.methods import METHODS

TITLES = {name: row["title"] for name, row in printed.read("methods")["methods"].items()}
SHOWN = ("opacus", "fast_grad_clip", "ghost_clip", "bk", "mix_ghost_clip", "bk_mix_ghost_clip",
         "bk_mix_opt", "auto")  # fmt: skip


def table_4(model: str | None) -> str:
    """ResNets stage by stage, and which of the two the paper and `auto` take."""
    cells = of_model(compared.resnet_layers(), model)
    rows = []
    for row in by_row(cells):
        name, stage = row.split(" ")
        here = compared.stage_layers(name, stage)
        data = printed.read("resnet_layers")[name][stage]
        texts = []
        for column, of in compared.STAGE_COLUMNS.items():
            texts.append(", ".join(f"{n} x {text}" for text, n in data[column]))
            counts = compared.count_values(here, of)
            texts.append(", ".join(f"{n} x {value}" for value, n in counts.items()))
        mark = " †" if any(c.key in printed.known() for c in cells if c.row == row) else ""
        rows.append([row + mark, *texts, *_decisions(here)])
    header = ["stage", "2T^2, printed", "2T^2", "pd, printed", "pd", "2T^2 < pd", "`auto`"]
    return markdown(header, rows) + "\n" + notes(cells)


def _decisions(here: list[Layer]) -> list[str]:
    """How many layers take which."""
    total = sum(layer.count for layer in here)
    ghost = sum(layer.count for layer in here if modules.ghost_is_smaller(layer))
    routes: Counter[str] = Counter()
    for layer in here:
        routes[choose(METHODS["auto"], layer)] += layer.count
    return [f"{ghost} of {total}", ", ".join(f"{n} {route}" for route, n in routes.items())]


def table_7(model: str | None) -> str:
    """Parameters; the last two columns count arrays that belong to no layer, too."""
    cells = of_model(compared.parameters(), model)
    rows = []
    for name, columns in by_row(cells).items():
        counts = layers.count_parameters(layers.read(name))
        share = 100 * counts.weights / counts.total
        rows.append([name, *map(pair, columns.values()), str(counts.total), f"{share:.2f}%"])
    header = ["model", "weights", "biases", "others", "applicable", "all parameters", "of all"]
    return markdown(header, rows) + "\n" + notes(cells)


def table_8(model: str | None) -> str:
    """Whole models: time, space and ratios by the paper's formulas, then by the package's."""
    cells = of_model(compared.overall(), model)
    methods = {m: TITLES[m] for m in compared.METHODS}
    parts = []
    for half in ("time", "space"):
        rows = [
            [row, *(pair(c[f"{half} {m}"]) for m in methods), _largest(c, half)]
            for row, c in by_row(cells).items()
        ]
        parts.append(markdown([half, *methods.values(), "largest deviation"], rows))
        rows = [
            [row, *(pair(c[f"{half} ratio {m}"]) for m in methods if m != "bk")]
            for row, c in by_row(cells).items()
        ]
        over = [f"{title} / BK" for m, title in methods.items() if m != "bk"]
        parts.append(markdown([f"{half}, ratios", *over], rows))
    return "\n\n".join(parts) + "\n" + notes(cells)


def _largest(columns: dict[str, Cell], half: str) -> str:
    """The largest deviation of a row, misprints left out."""
    misprints = printed.known()
    deviations = [
        cell.deviation
        for column, cell in columns.items()
        if column.startswith(half) and "ratio" not in column and cell.key not in misprints
    ]
    return f"{100 * max(deviations, key=abs):+.1f} %"


def table_10(model: str | None) -> str:
    """What norms need, summed over a model."""
    cells = of_model(compared.norm_space(), model)
    rows = [[name, *map(pair, columns.values())] for name, columns in by_row(cells).items()]
    header = ["model", "mixed", "instantiated", "ghost", "saving", "saving over ghost"]
    return markdown(header, rows) + "\n" + notes(cells)


def package_table(model: str | None) -> str:
    """The package's cost model: flops of each method over non-private ones, and memory on top."""
    rows = []
    for name, tokens in package_models():
        if model not in (None, name):
            continue
        read = layers.read(name, tokens=tokens)
        costs = {method: model_cost(read, method) for method in SHOWN}
        auto = costs["auto"]
        routes = ", ".join(f"{n} {route}" for route, n in sorted(auto.routes.items()))
        size = f", T={read.tokens}" if read.tokens else f", {read.image}" if read.image else ""
        ratios = [f"{cost.ratio:.3f}" for cost in costs.values()]
        kept = [f"{costs[m].extra_bytes / 1e6:.1f}" for m in ("opacus", "bk_mix_opt", "auto")]
        rows.append([read.title + size, f"{auto.non_private / 1e9:.2f}", *ratios, *kept, routes])
    more = [f"MB more, `{m}`" for m in ("opacus", "bk_mix_opt", "auto")]
    header = ["model", "Gflop", *(f"`{m}`" for m in SHOWN), *more, "routes of `auto`"]
    return markdown(header, rows)


def package_models() -> list[tuple[str, int | None]]:
    """Every model at its own size, GPT2 at the paper's second length, too."""
    return [
        (name, tokens)
        for name in layers.names()
        for tokens in ((100, 1000) if name.startswith("gpt2") else (None,))
    ]
