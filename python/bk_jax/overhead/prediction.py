"""Prediction: seconds of instructions from their flops and bytes, at the rates of the plain step.

    seconds = max(flops * seconds_per_flop, bytes * seconds_per_byte)

Flops and bytes are those of `bk_jax.hlo`, which knows our calls. The rate per flop is that of the
products of the plain step, the rate per byte that of its other operations. So what is predicted of
the private step is the time that it would take if its operations ran as XLA's do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from bk_jax.hlo import cost
from bk_jax.hlo.model import Module
from bk_jax.hlo.stacks import runs
from bk_jax.overhead.flow import HOLDING
from bk_jax.overhead.owners import PRODUCTS, executed


class Work(NamedTuple):
    """What an instruction does in one step."""

    flops: int
    nbytes: int
    is_product: bool


class Rates(NamedTuple):
    """What work costs."""

    seconds_per_flop: float
    seconds_per_byte: float

    def seconds(self, work: Work) -> float:
        """Predicted time."""
        return max(work.flops * self.seconds_per_flop, work.nbytes * self.seconds_per_byte)


def work_of(module: Module) -> dict[str, Work]:
    """Flops and bytes of every instruction that runs by itself, with the loops around it."""
    out = {}
    for instruction in executed(module):
        if instruction.opcode in HOLDING or instruction.opcode in cost.FREE:
            continue
        times = runs(module, instruction)
        flops, moved = cost.flops(module, instruction), cost.traffic(module, instruction)
        is_product = cost.kind_of(module, instruction) in PRODUCTS
        out[instruction.name] = Work(times * flops, times * moved, is_product)
    return out


def fit_rates(work: Mapping[str, Work], seconds: Mapping[str, float]) -> Rates:
    """Time over flops of the products that were seen, and over bytes of all else.

    >>> work = {"dot": Work(100, 10, True), "add": Work(10, 20, False)}
    >>> fit_rates(work, {"dot": 200.0, "add": 60.0})
    Rates(seconds_per_flop=2.0, seconds_per_byte=3.0)
    """
    products = [name for name in work if name in seconds and work[name].is_product]
    others = [name for name in work if name in seconds and not work[name].is_product]
    return Rates(
        _rate(sum(seconds[name] for name in products), sum(work[name].flops for name in products)),
        _rate(sum(seconds[name] for name in others), sum(work[name].nbytes for name in others)),
    )


def _rate(seconds: float, amount: int) -> float:
    return seconds / amount if amount else 0.0


def rates_by_flops(work: Mapping[str, Work]) -> Rates:
    """Where no operation was seen: a step costs its flops, in units of their number."""
    return Rates(_rate(1.0, sum(part.flops for part in work.values())), 0.0)
