"""What private training of one layer is put together from, and what each part costs.

The parts are the modules of the Book-Keeping paper: 1 forward pass, 2a output gradient, 2b weight
gradient, 3 ghost norm, 4 gradients of single examples, 5 their weighted sum. Costs are sums of terms
such as 2 B T p d, held as coefficients, so that tables of formulas are compared exactly.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping

from benchmarks.paper.complexity.layers import Layer

Terms = Mapping[str, int]

TERMS: dict[str, Callable[[int, int, int, int], int]] = {
    "BTpd": lambda B, T, d, p: B * T * p * d,
    "BT^2(p+d)": lambda B, T, d, p: B * T * T * (p + d),
    "Bpd": lambda B, T, d, p: B * p * d,
    "BT^2": lambda B, T, d, p: B * T * T,
    "pd": lambda B, T, d, p: p * d,
    "BTd": lambda B, T, d, p: B * T * d,
    "BTp": lambda B, T, d, p: B * T * p,
}


@dataclasses.dataclass(frozen=True)
class Module:
    """One part: flops, and numbers that it keeps."""

    title: str
    time: Terms
    space: Terms


MODULES = {
    "1": Module("forward pass", {"BTpd": 2}, {"pd": 1, "BTd": 1}),
    "2a": Module("output gradient", {"BTpd": 2}, {"BTp": 1, "BTd": 1}),
    "2b": Module("weight gradient", {"BTpd": 2}, {"pd": 1}),
    "3": Module("ghost norm", {"BT^2(p+d)": 2}, {"BT^2": 2}),
    "4": Module("gradients of single examples", {"BTpd": 2}, {"Bpd": 1}),
    "5": Module("weighted sum of them", {"Bpd": 2}, {}),
}

# Where a method decides layer by layer, the modules with the ghost norm and those without it.
BY_THE_PAPER: dict[str, tuple[str, str]] = {
    "non_private": ("1 2a 2b", "1 2a 2b"),
    "opacus": ("1 2a 2b 4 5", "1 2a 2b 4 5"),
    "fast_grad_clip": ("1 2a 4 2a 2b", "1 2a 4 2a 2b"),
    "ghost_clip": ("1 2a 2b 3 2a 2b", "1 2a 2b 3 2a 2b"),
    "bk": ("1 2a 3 2b", "1 2a 3 2b"),
    "mix_ghost_clip": ("1 2a 2b 3 2a 2b", "1 2a 2b 4 2a 2b"),
    "bk_mix_ghost_clip": ("1 2a 3 2b", "1 2a 4 2b"),
    "bk_mix_opt": ("1 2a 3 2b", "1 2a 4 5"),
}
# The package never forms a gradient that it does not use; its second back-propagation starts with a
# forward pass of its own.
BY_THE_PACKAGE = BY_THE_PAPER | {
    "opacus": ("1 2a 4 5", "1 2a 4 5"),
    "fast_grad_clip": ("1 2a 4 1 2a 2b", "1 2a 4 1 2a 2b"),
    "ghost_clip": ("1 2a 3 1 2a 2b", "1 2a 3 1 2a 2b"),
    "mix_ghost_clip": ("1 2a 3 1 2a 2b", "1 2a 4 1 2a 2b"),
}


def ghost_is_smaller(layer: Layer) -> bool:
    """The paper's rule for a layer: two T x T matrices hold less than a gradient."""
    return 2 * layer.t**2 < layer.matrix


def modules_of(
    method: str, ghost: bool, by: Mapping[str, tuple[str, str]] = BY_THE_PAPER
) -> list[str]:
    """The modules that a method runs on a layer whose ghost norm is (or is not) the smaller one."""
    return by[method][0 if ghost else 1].split()


def total_time(modules: list[str]) -> Terms:
    """The flops of some modules, added up."""
    total: Counter[str] = Counter()
    for module in modules:
        total.update(MODULES[module].time)
    return dict(total)


def more_space(method: str) -> str:
    """What the norm of a method keeps on top of non-private training, as a formula.

    >>> more_space("bk"), more_space("bk_mix_opt")
    ('2BT^2', 'min(2BT^2, Bpd)')
    """
    found = dict.fromkeys(
        text(MODULES[module].space)
        for ghost in (True, False)
        for module in modules_of(method, ghost)
        if module in ("3", "4")
    )
    return f"min({', '.join(found)})" if len(found) > 1 else "".join(found)


def value(terms: Terms, B: int, T: int, d: int, p: int) -> int:
    """The number that terms stand for.

    >>> value({"BTpd": 6, "BT^2(p+d)": 2}, B=1, T=2, d=3, p=5)
    244
    """
    return sum(factor * TERMS[term](B, T, d, p) for term, factor in terms.items())


def text(terms: Terms) -> str:
    """Terms as a formula.

    >>> text({"BTpd": 6, "Bpd": 1})
    '6BTpd + Bpd'
    """
    parts = [f"{factor if factor != 1 else ''}{term}" for term, factor in terms.items() if factor]
    return " + ".join(parts) or "0"
