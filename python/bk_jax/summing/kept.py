"""What is kept of a gradient between back-propagation and the sum: the interface of all kinds of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import jax

from bk_jax import _compat
from bk_jax.ops.numerics import SquaredNorms
from bk_jax.planning.equal import Numbers, alike
from bk_jax.sharding.partition import Shards

Sums = Mapping[int, jax.Array]  # of leaves, by number
Pair = tuple[jax.Array, jax.Array]


def added(start: Sums, parts: Sums) -> dict[int, jax.Array]:
    """The parts, each added to what there is of its leaf."""
    return {leaf: start[leaf] + part if leaf in start else part for leaf, part in parts.items()}


class Cut(NamedTuple):
    """How the arrays that norms are taken of may be cut over devices.

    Attributes:
      labels: of the axes of every array, as for `sharding.partition.Rule`; `b` are the examples.
      parts: labels along which squared norms of the parts add up to that of the whole.
      whole: labels whose positions are needed together.
    """

    labels: tuple[str, ...]
    parts: tuple[str, ...] = ()
    whole: frozenset[str] = frozenset()


class Kept(Protocol):
    """What is kept of a gradient: first its norms are asked for, then its sum."""

    @property
    def leaves(self) -> tuple[int, ...]:
        """The leaves that the gradient belongs to."""

    def squared_norms(self) -> SquaredNorms:
        """Squared norms `[B]`."""

    def clipped_sum(self, factor: jax.Array, start: Sums) -> dict[int, jax.Array]:
        """The sum over examples of `factor[i]` times the gradient, for every leaf, added to `start`."""

    # For many devices:

    @property
    def arrays(self) -> tuple[jax.Array, ...]:
        """What the norms are taken of."""

    @property
    def cut(self) -> Cut:
        """How these arrays may be cut."""

    def on_device(self, shards: Shards, arrays: Sequence[jax.Array]) -> Sequence[Kept]:
        """What a device keeps, from its parts of the arrays: one, or several with cuts of their own."""


class Layer(Kept, Protocol):
    """A dense layer, or several that share activations: its norm is the ghost norm of two arrays."""

    @property
    def pair(self) -> Pair:
        """Activations and output gradients, `[B, N, T, k]`, in any order."""


def equal_operands(pairs: Sequence[Pair]) -> Numbers:
    """Numbers of pairs that one call can take: of the same shapes and dtypes.

    Inside a `shard_map` they differ along the same axes, too, or all results of the call would.
    """
    return alike([tuple((x.shape, x.dtype, _compat.varying(x)) for x in pair) for pair in pairs])
