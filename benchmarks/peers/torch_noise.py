"""The noise of Opacus, in the environment that holds it; benchmarks/mechanisms/noise_table.py starts it.

    python -m benchmarks.peers.torch_noise 1000000

Takes turns as benchmarks/mechanisms/turns.py says. What is timed is `add_noise`, and for adaptive
clipping what moves the clip norm. Opacus has no noise that is correlated over steps and none on a grid.
Its `secure_mode` adds up four draws, so that rounding shows less of them; the generator that belongs to
it, of the package torchcsprng, is not here: its draws come from the same generator as the others.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import numpy as np
import torch
from opacus.accountants import create_accountant
from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer
from torch import nn

from benchmarks.mechanisms import exactness, rows
from benchmarks.mechanisms.rows import Row, Spent
from benchmarks.mechanisms.turns import clocked

SEED = 0
ADAPTIVE = {
    "target_unclipped_quantile": rows.QUANTILE,
    "clipbound_learning_rate": rows.LEARNING_RATE,
    "unclipped_num_std": rows.COUNT_STDDEV,
    "max_clipbound": 1e6,
    "min_clipbound": 1e-6,
}
KINDS: dict[str, dict[str, Any]] = {
    "independent": {},
    "independent, secure_mode": {"secure_mode": True},
    rows.ADAPTIVE: ADAPTIVE,
}


def optimizer_of(size: int, options: dict[str, Any]) -> DPOptimizer:
    """Of one parameter, with a clip norm of 1; no step of it is taken."""
    inner = torch.optim.SGD([nn.Parameter(torch.zeros(size))], lr=0.0)
    kind = AdaClipDPOptimizer if options is ADAPTIVE else DPOptimizer
    return kind(
        inner,
        noise_multiplier=rows.MULTIPLIER,
        max_grad_norm=1.0,
        expected_batch_size=rows.BATCH,
        generator=torch.Generator().manual_seed(SEED),
        **options,
    )


def summed(optimizer: DPOptimizer) -> None:
    """As after `clip_and_accumulate`: sums of zeros, and the count of a batch."""
    [parameter] = optimizer.params
    parameter.summed_grad = torch.zeros(parameter.shape)
    if isinstance(optimizer, AdaClipDPOptimizer):
        optimizer.sample_size = rows.BATCH
        optimizer.unclipped_num = torch.tensor(rows.UNCLIPPED)


def step(optimizer: DPOptimizer) -> torch.Tensor:
    """Adds noise, and moves the clip norm."""
    optimizer.add_noise()
    if isinstance(optimizer, AdaClipDPOptimizer):
        optimizer.update_max_grad_norm()
    return optimizer.params[0].grad


def gradient_multiplier(optimizer: DPOptimizer) -> float:
    """What is left for the gradient beside the count, as `AdaClipDPOptimizer.add_noise` has it."""
    if not isinstance(optimizer, AdaClipDPOptimizer):
        return rows.MULTIPLIER
    return (rows.MULTIPLIER**-2 - (2 * rows.COUNT_STDDEV) ** -2) ** -0.5


def drawn(generator: torch.Generator, optimizer: DPOptimizer) -> np.ndarray[Any, Any]:
    """The draws of a step, made again, and as one of deviation 1."""
    if optimizer.secure_mode:
        torch.normal(0, 1.0, (1, 1), generator=generator)
    count = 4 if optimizer.secure_mode else 1
    draws = [torch.normal(0, 1.0, (rows.VALUES,), generator=generator) for _ in range(count)]
    if isinstance(optimizer, AdaClipDPOptimizer):
        torch.normal(0, 1.0, (), generator=generator)
    return sum(draw.numpy().astype(np.float64) for draw in draws) / math.sqrt(count)


def epsilon(optimizer: DPOptimizer) -> float:
    """One step of everybody, by the accountant that Opacus takes if it is not told."""
    accountant = create_accountant("prv")
    accountant.step(noise_multiplier=optimizer.noise_multiplier, sample_rate=1.0)
    with np.errstate(divide="ignore"):  # the logarithm of 1 minus a sample rate of 1
        return float(accountant.get_epsilon(rows.DELTA))


def epsilon_here(optimizer: DPOptimizer) -> float:
    """From what a step shows."""
    mu = 1 / gradient_multiplier(optimizer)
    if isinstance(optimizer, AdaClipDPOptimizer):
        return exactness.divided_count(mu, rows.COUNT_STDDEV, rows.BATCH, rows.DELTA)
    return exactness.gaussian(mu, rows.DELTA)


def kept(optimizer: DPOptimizer) -> float:
    """Bytes of tensors that the optimizer and its parameter hold after `zero_grad`."""
    [parameter] = optimizer.params
    optimizer.zero_grad(set_to_none=True)
    held = [x for x in (*vars(optimizer).values(), *vars(parameter).values()) if torch.is_tensor(x)]
    held += [x for x in (parameter.grad, optimizer.generator.get_state()) if x is not None]
    return sum(x.numel() * x.element_size() for x in held) / (4 * parameter.numel())


def row(name: str, size: int) -> Row:
    few, again = optimizer_of(rows.VALUES, KINDS[name]), torch.Generator().manual_seed(SEED)
    stddev, noise, draws = gradient_multiplier(few), [], []
    for _ in range(rows.CHECKED):
        summed(few)
        norm = float(few.max_grad_norm)
        noise.append(step(few).numpy().astype(np.float64) / (stddev * norm))
        draws.append(drawn(again, few))
    whole = optimizer_of(size, KINDS[name])
    summed(whole)
    step(whole)
    return Row(
        library="Opacus",
        mechanism=name,
        off=exactness.off(np.eye(rows.CHECKED), draws, noise),
        normal=exactness.normal(noise[-1], 1.0),
        theirs=epsilon(few),
        here=epsilon_here(few),
        kept=kept(whole),
    )


def turn(optimizer: DPOptimizer) -> Spent:
    """Seconds of the second of two steps."""
    for _ in range(2):
        summed(optimizer)
        _, spent = clocked(lambda: step(optimizer))
    return spent


def main() -> None:
    size = int(sys.argv[1])
    print(json.dumps([rows.as_dict(row(name, size)) for name in KINDS]), flush=True)
    optimizers = [optimizer_of(size, options) for options in KINDS.values()]
    for _ in sys.stdin:
        print(json.dumps([turn(optimizer) for optimizer in optimizers]), flush=True)


if __name__ == "__main__":
    main()
