"""Seconds: what a step takes with and without privacy, predicted from its work and a machine's rates.

Both steps compute the same pass: the loss, and the gradients of what every layer made. The plain step
adds the gradients of the weights. The private one adds norms, factors, clipped sums and noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bk_jax.planning.equal import calls_saved
from bk_jax.planning.layer_seconds import (
    limited,
    plain_seconds,
    route_seconds,
    weighted_sum_seconds,
)
from bk_jax.planning.plan import Block, Plan
from bk_jax.planning.rates import Rates, rate_at
from bk_jax.planning.work import Product, Work
from bk_jax.program.trace import Leaf

# Measured on XLA:CPU, where a ViT and a ResNet spend 190 and 120 ms of 600 and 300 beside products:
# elementwise results cost about as much as writing each once, sums and transposes half as much again
# as reading and writing at full speed.
FUSED_BYTES = 1.0
MOVED_BYTES = 1.5
CLIP_OPERATIONS = 20  # from norms to factors, for a batch


class Both(NamedTuple):
    """Seconds of one part of the plain step, and of what stands for it in the private one."""

    plain: float
    private: float


class Prediction(NamedTuple):
    """Seconds of both steps, and of every block, leaf and of the rest.

    Attributes:
      common: the pass that both steps compute.
      blocks: one for each block of the plan.
      tapped: of leaves that are tapped, by number.
      noise: of every leaf; zeros if the step has none.
      clipping: what privacy adds that belongs to no leaf.
    """

    common: float
    blocks: tuple[Both, ...]
    tapped: Mapping[int, Both]
    noise: tuple[float, ...]
    clipping: float

    @property
    def plain(self) -> float:
        """Of the step without privacy."""
        return self.common + sum(part.plain for part in (*self.blocks, *self.tapped.values()))

    @property
    def private(self) -> float:
        """Of the step with it."""
        parts = (*self.blocks, *self.tapped.values())
        return self.common + sum(p.private for p in parts) + sum(self.noise) + self.clipping


def predict(
    work: Work,
    plan: Plan,
    leaves: Sequence[Leaf],
    batch_size: int,
    rates: Rates,
    *,
    has_noise: bool,
    passes: int = 1,
) -> Prediction:
    """Predicts both steps from the work of the pass of a batch; `passes`: of the private step."""
    common = pass_seconds(work, rates)
    sizes = [math.prod(leaf.shape) for leaf in leaves]
    later = {number for call in plan.norm_calls for number in call[1:]}  # share the first's Gram
    saved = calls_saved(plan)
    blocks = [
        block_seconds(block, batch_size, rates, shares_gram=number in later)
        for number, block in enumerate(plan.blocks)
    ]
    return Prediction(
        common,
        tuple(
            Both(both.plain, both.private - saved[number] * rates.operation)
            for number, both in enumerate(blocks)
        ),
        {leaf: tapped_seconds(sizes[leaf], batch_size, rates) for leaf in plan.tapped},
        tuple(size / rates.noise if has_noise else 0.0 for size in sizes),
        (passes - 1) * common + CLIP_OPERATIONS * rates.operation,
    )


def pass_seconds(work: Work, rates: Rates) -> float:
    """Of the work of a traced program."""
    products = sum(count * _product(p, rates) for p, count in work.products.items())
    moved = MOVED_BYTES * work.moved + FUSED_BYTES * work.fused
    elements = work.transcendental / rates.transcendental
    return products + moved / rates.memory + elements + work.operations * rates.operation


def _product(product: Product, rates: Rates) -> float:
    if product.kind == "convolution":
        rate = rate_at(rates.convolution, product.pixels)
    elif product.kind == "batched":
        rate = rates.batched_product
    else:
        rate = rates.product_16 if product.itemsize < 4 else rates.product
    return limited(product.flops / rate, product.nbytes, rates)


def block_seconds(block: Block, batch_size: int, rates: Rates, *, shares_gram: bool) -> Both:
    """The gradient of a weight, and its norms and clipped sum by the block's route."""
    if block.kind == "lookup":
        return _lookup(block, block.route, batch_size, rates)
    own = _layer(block, batch_size, rates, shares_gram)
    if block.kind != "tied":
        return own
    looked_up = _lookup(block, "sparse", batch_size, rates)
    return Both(own.plain + looked_up.plain, own.private + looked_up.private)


def _layer(block: Block, batch_size: int, rates: Rates, shares_gram: bool) -> Both:
    """A dense layer or a convolution."""
    cost = block.cost.of_batch(batch_size)
    private = route_seconds(cost, block.route, batch_size, rates, shares_gram=shares_gram)
    return Both(plain_seconds(cost, batch_size, rates), private)


def _lookup(block: Block, route: str, batch_size: int, rates: Rates) -> Both:
    """Rows that are added to a table of zeros; ours are read once for the norm, once for the sum."""
    sites = [site for site in block.sites if site.use.kind == "lookup"]
    rows = batch_size * sum(
        site.use.sizes[1] * math.prod(axis.length for axis in site.axes) for site in sites
    )
    added, table = rows * block.cost.p, block.cost.stored_bytes
    plain = added / rates.scatter + limited(0.0, table, rates)
    if route == "store":
        each = added / rates.scatter + limited(0.0, batch_size * table, rates)
        return Both(plain, each + weighted_sum_seconds(batch_size * table, table, rates))
    return Both(plain, 2 * rates.operation + limited(0.0, 3 * 4 * added + table, rates))


def tapped_seconds(size: int, batch_size: int, rates: Rates) -> Both:
    """Gradients of every example, which the pass has made: read for the norm and for the sum."""
    nbytes = 4 * size * batch_size  # one call for all leaves: there is no start of an operation
    return Both(0.0, (2 * nbytes + 4 * size) / rates.memory)
