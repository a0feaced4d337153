"""The tables of formulas, 3 (modules) and 5 (methods; table 2 is an extract of it)."""

from __future__ import annotations

from typing import Any

from benchmarks.paper.complexity import modules, printed
from benchmarks.paper.complexity.layers import Layer, Model
from benchmarks.paper.complexity.markdown import markdown
from benchmarks.paper.complexity.package_cost import model_cost
from bk_jax.planning.methods import METHODS

EXAMPLE = {"d": 768, "p": 3072}  # of GPT2-small
LENGTHS = (100, 1000)


def table_3(model: str | None) -> str:
    """Modules."""
    del model
    rows = []
    for key, paper in printed.read("modules")["modules"].items():
        ours = modules.MODULES[key]
        texts = [modules.text(t) for t in (paper["time"], ours.time, paper["space"], ours.space)]
        rows.append([f"{key} {ours.title}", *texts])
    return markdown(["module", "time, paper", "time", "space, paper", "space"], rows)


def table_5(model: str | None) -> str:
    """Methods on one layer; and, as multiples of 6BTpd, on GPT2's d = 768, p = 3072."""
    del model
    header = [
        "method",
        "modules",
        "time, paper",
        "sum of the modules",
        "more space, paper",
        "more space",
    ]
    header += [f"T = {t}, {by}" for t in LENGTHS for by in ("modules", "bk_jax")]
    rows = []
    for name, row in printed.read("methods")["methods"].items():
        paper = [modules.text(row[key]) for key in ("time", "otherwise") if key in row]
        sums = dict.fromkeys(_sum_text(name, ghost) for ghost in (True, False))
        times = [" or ".join(paper), " or ".join(sums)]
        spaces = [paper_space(name, row), modules.more_space(name)]
        example = [cell for t in LENGTHS for cell in _example(name, t)]
        rows.append([row["title"], row["modules"], *times, *spaces, *example])
    ours = [cell for t in LENGTHS for cell in ("", _example("auto", t)[1])]
    return markdown(header, [*rows, ["bk_jax `auto`", *[""] * 5, *ours]])


def paper_space(name: str, row: dict[str, Any]) -> str:
    """What the paper prints; non-private training's own space is not on top of anything."""
    if name == "non_private":
        return ""
    return row["space"] if isinstance(row["space"], str) else modules.text(row["space"])


def _sum_text(method: str, ghost: bool) -> str:
    return modules.text(modules.total_time(modules.modules_of(method, ghost)))


def _example(method: str, t: int) -> list[str]:
    """Flops over 6BTpd by the paper's modules and by the package."""
    layer = Layer("up", "dense", t=t, **EXAMPLE)
    plain = 6 * t * layer.matrix
    cells = [""]
    if method in modules.BY_THE_PAPER:
        ghost = modules.ghost_is_smaller(layer)
        terms = modules.total_time(modules.modules_of(method, ghost))
        cells = [f"{modules.value(terms, 1, t, layer.d, layer.p) / plain:.3f}"]
    one = Model("one", "one layer", (layer,))
    return [*cells, f"{model_cost(one, method).ratio:.3f}" if method in METHODS else "1.000"]
