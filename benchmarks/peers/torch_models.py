"""The models of benchmarks/steps in PyTorch, with the same numbers in their parameters.

Everything is drawn in the order in which step_models draws it, so that losses can be compared across
frameworks. No JAX here.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn


class Task(NamedTuple):
    """A module, its input, and the labels of the cross entropy of what it returns."""

    module: nn.Module
    inputs: torch.Tensor
    labels: torch.Tensor


class Draws:
    """The numbers of step_models.parts.Weights."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)

    def normal(self, *shape: int, scale: float = 0.02) -> torch.Tensor:
        numbers = scale * self.random.standard_normal(shape, np.float32)
        return torch.from_numpy(numbers.astype(np.float32))

    def integers(self, *shape: int, below: int) -> torch.Tensor:
        return torch.from_numpy(self.random.integers(0, below, shape).astype(np.int64))

    def linear(self, d: int, p: int) -> nn.Linear:
        """A layer whose weight is the transpose of ours."""
        layer = nn.Linear(d, p)
        layer.weight.data = self.normal(d, p).T.contiguous()
        nn.init.zeros_(layer.bias)
        return layer


def mlp(
    batch: int = 128,
    width: int = 1000,
    depth: int = 10,
    inputs: int | None = None,
    classes: int = 10,
) -> Task:
    draws = Draws()
    widths = [inputs or width, *[width] * depth, classes]
    layers: list[nn.Module] = []
    for d, p in pairwise(widths):
        layers += [draws.linear(d, p), nn.ReLU()]
    module = nn.Sequential(*layers[:-1])
    x = draws.normal(batch, widths[0], scale=1.0)
    return Task(module, x, draws.integers(batch, below=classes))


class Block(nn.Module):
    """Attention and a perceptron, each after a LayerNorm."""

    def __init__(self, draws: Draws, d: int) -> None:
        super().__init__()
        self.heads = max(1, d // 64)
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = draws.linear(d, 3 * d), draws.linear(d, d)
        self.up, self.down = draws.linear(d, 4 * d), draws.linear(4 * d, d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, d = x.shape
        split = self.qkv(self.norm1(x)).reshape(batch, length, 3, self.heads, d // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, d))
        hidden = nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh")
        return x + self.down(hidden)


class Gpt2(nn.Module):
    """GPT2 with its output head tied to the token embedding."""

    def __init__(self, draws: Draws, depth: int, d: int, words: int) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(words, d), nn.Embedding(1024, d)
        self.token.weight.data = draws.normal(words, d)
        self.position.weight.data = draws.normal(1024, d)
        self.norm = nn.LayerNorm(d)
        self.blocks = nn.ModuleList(Block(draws, d) for _ in range(depth))
        self.head = nn.Linear(d, words, bias=False)
        self.head.weight = self.token.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        # One row of positions for each example: Opacus counts examples by the first axis.
        positions = torch.arange(ids.shape[1]).expand(ids.shape)
        x = self.token(ids) + self.position(positions)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, :-1])  # the last token predicts nothing


def gpt2(
    batch: int = 8, length: int = 100, depth: int = 12, d: int = 768, words: int = 50257
) -> Task:
    draws = Draws()
    module = Gpt2(draws, depth, d, words)
    ids = draws.integers(batch, length, below=words)
    return Task(module, ids, ids[:, 1:])


MODELS: dict[str, Any] = {"mlp": mlp, "gpt2": gpt2}
