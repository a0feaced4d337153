"""Noise and optimizer in one pass: sums of clipped gradients in, new parameters and moments out.

    g = scale * (sum + stddev * z)            z: the normals of `gaussian`, stream by stream

| optimizer | moments, updated first | x += step * u |
|---|---|---|
| sgd | | u = g |
| momentum | m = g + decay m | u = m |
| nesterov | m = g + decay m | u = g + decay m |
| adam | m = gain g + decay m, v = second_gain g² + second_decay v | u = unbias m / (√(second_unbias v + epsilon_root) + epsilon) |
| adamw | the same | the same u, + weight_decay x |

This is the arithmetic of optax, in its order; like XLA we multiply by the reciprocal of a scalar that
arrays are divided by. In steps of their own, noise is a pass over the sums and
the update another one over all arrays; here each value is read and written once.
"""  # noqa: E501  (a table)

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bk_jax import _native
from bk_jax.ops.chacha import check_key
from bk_jax.ops.gaussians import TOGETHER, gaussians
from bk_jax.repeated import repeated

MOMENTS = {"sgd": 0, "momentum": 1, "nesterov": 1, "adam": 2, "adamw": 2}


class Numbers(NamedTuple):
    """What an update is made with, each a float32 scalar; `custom_calls` has the same list."""

    stddev: Any
    scale: Any
    step: Any
    decay: Any = 0.0
    gain: Any = 0.0
    second_decay: Any = 0.0
    second_gain: Any = 0.0
    unbias: Any = 1.0
    second_unbias: Any = 1.0
    epsilon_root: Any = 0.0
    epsilon: Any = 0.0
    weight_decay: Any = 0.0


class Leaf(NamedTuple):
    """A parameter, the moments that the optimizer keeps of it, and the sum of its gradients."""

    sum: jax.Array
    parameter: jax.Array
    moments: tuple[jax.Array, ...] = ()


def noisy_update(
    leaves: Sequence[Leaf], key: jax.Array, numbers: Numbers, *, optimizer: str
) -> list[tuple[jax.Array, ...]]:
    """The updated parameter and its updated moments, for every leaf; all arrays are float32.

    Args:
      leaves: leaf number `i` has the noise of stream `i`. Where XLA sees that nothing else needs them,
        parameters and moments are overwritten.
      key: `uint32[8]`.
      numbers: scalars, which may be traced. With `stddev` 0 no noise is added.
      optimizer: a name of the table above.

    >>> import jax.numpy as jnp
    >>> leaf = Leaf(jnp.asarray([4.0, -2.0]), jnp.asarray([1.0, 1.0]), (jnp.asarray([2.0, 0.0]),))
    >>> numbers = Numbers(stddev=0.0, scale=0.5, step=-0.5, decay=0.5)
    >>> ((x, m),) = noisy_update([leaf], jnp.zeros(8, jnp.uint32), numbers, optimizer="momentum")
    >>> print(x, m)
    [-0.5  1.5] [ 3. -1.]
    """
    check_key("noisy_update", key)
    for i, leaf in enumerate(leaves):
        _check_leaf(i, leaf, optimizer)
    packed = jnp.stack([jnp.asarray(number, jnp.float32) for number in numbers])
    found: dict[int, tuple[jax.Array, ...]] = {}
    for streams in _calls(leaves):
        found |= _call([leaves[i] for i in streams], streams, key, packed, optimizer)
    return [found[i] for i in range(len(leaves))]


def _calls(leaves: Sequence[Leaf]) -> list[tuple[int, ...]]:
    """The leaves of each call: small ones together, each large one alone.

    The sum of a large one is updated as soon as it is there, and need not be kept until all others are.
    """
    small = tuple(i for i, leaf in enumerate(leaves) if leaf.sum.size <= TOGETHER)
    large = [(i,) for i, leaf in enumerate(leaves) if leaf.sum.size > TOGETHER]
    return [*([small] if small else []), *large]


def _call(
    leaves: Sequence[Leaf],
    streams: tuple[int, ...],
    key: jax.Array,
    numbers: jax.Array,
    optimizer: str,
) -> dict[int, tuple[jax.Array, ...]]:
    """The operands by what they are: all sums, all parameters, all first moments and so on."""
    count = len(leaves)
    columns = zip(*((leaf.sum, leaf.parameter, *leaf.moments) for leaf in leaves), strict=True)
    operands = (key, numbers, *(array for column in columns for array in column))
    updated = operands[2 + count :]
    results = _native.call(
        "bk_noisy_update",
        noisy_update_twin,
        [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in updated],
        *operands,
        aliases={2 + count + i: i for i in range(len(updated))},
        optimizer=optimizer,
        streams=streams,
    )
    return {stream: results[i::count] for i, stream in enumerate(streams)}


def noisy_update_twin(
    key: jax.Array, numbers: jax.Array, *arrays: jax.Array, optimizer: str, streams: tuple[int, ...]
) -> tuple[jax.Array, ...]:
    """The same in plain JAX, but for the noise, which is a custom call where there is one."""
    count = len(streams)
    scalars = Numbers(*numbers)
    noisy = gaussians(arrays[:count], key, scalars.stddev, streams=streams)
    updated = [
        _update_one(noisy[i], scalars, *arrays[i + count :: count], optimizer=optimizer)
        for i in range(count)
    ]
    return tuple(array for column in zip(*updated, strict=True) for array in column)


@repeated("optimizer")
def _update_one(
    noisy: jax.Array, n: Numbers, x: jax.Array, *moments: jax.Array, optimizer: str
) -> tuple[jax.Array, ...]:
    direction, *updated = DIRECTIONS[optimizer](n, n.scale * noisy, x, *moments)
    return (x + n.step * direction, *updated)


def _sgd(n: Numbers, g: jax.Array, x: jax.Array) -> tuple[jax.Array, ...]:
    return (g,)


def _momentum(n: Numbers, g: jax.Array, x: jax.Array, m: jax.Array) -> tuple[jax.Array, ...]:
    m = g + n.decay * m
    return m, m


def _nesterov(n: Numbers, g: jax.Array, x: jax.Array, m: jax.Array) -> tuple[jax.Array, ...]:
    m = g + n.decay * m
    return g + n.decay * m, m


def _adam(
    n: Numbers, g: jax.Array, x: jax.Array, m: jax.Array, v: jax.Array
) -> tuple[jax.Array, ...]:
    m = n.gain * g + n.decay * m
    v = n.second_gain * (g * g) + n.second_decay * v
    root = jnp.sqrt(n.second_unbias * v + n.epsilon_root)
    return (n.unbias * m) / (root + n.epsilon), m, v


def _adamw(
    n: Numbers, g: jax.Array, x: jax.Array, m: jax.Array, v: jax.Array
) -> tuple[jax.Array, ...]:
    u, m, v = _adam(n, g, x, m, v)
    return u + n.weight_decay * x, m, v


DIRECTIONS: dict[str, Callable[..., tuple[jax.Array, ...]]] = {
    "sgd": _sgd,
    "momentum": _momentum,
    "nesterov": _nesterov,
    "adam": _adam,
    "adamw": _adamw,
}


def _check_leaf(number: int, leaf: Leaf, optimizer: str) -> None:
    if optimizer not in MOMENTS:
        names = ", ".join(map(repr, MOMENTS))
        raise ValueError(f"noisy_update expects optimizer to be one of {names}; got {optimizer!r}.")
    if len(leaf.moments) != MOMENTS[optimizer]:
        raise ValueError(
            f"noisy_update expects {MOMENTS[optimizer]} moments for optimizer={optimizer!r}; leaf "
            f"{number} has {len(leaf.moments)}."
        )
    for array in (leaf.sum, leaf.parameter, *leaf.moments):
        if array.shape != leaf.sum.shape or array.dtype != jnp.float32:
            raise ValueError(
                f"noisy_update expects float32 arrays of one shape in each leaf; leaf {number} has a "
                f"sum of shape {leaf.sum.shape} and {array.dtype} of shape {array.shape}."
            )
