"""Correlated noise: step `t` adds row `t` of `C^-1` times the draws of all steps.

Noise that a step adds is partly taken back by the next ones, so sums of gradients, which is what models
are made of, are less noisy for the same epsilon. `C` is a lower-triangular Toeplitz matrix, the
*strategy*. Three kinds make its noise, and each says what it stores:

| kind | `C^-1` | stores beside the optimizer's state |
|---|---|---|
| `BandedInverse` | has `b` bands | nothing: the draws of the last `b` steps are made again |
| `BandedToeplitz` | `C` has `b` bands | the noise of the last `b - 1` steps |
| `BufferedToeplitz` | `C` is a sum of `d` geometric series | `d` running sums of noise |

What is stored is noise that was added: whoever has it can subtract it. Keep such a state as secret as
the ledger.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax import checks
from bk_jax.mechanisms import optimized, toeplitz
from bk_jax.noise import add_noise
from bk_jax.ops.numerics import accumulation_dtype
from bk_jax.sharding.manual import NOT_MANUAL, Manual

Arrays = Sequence[jax.Array]


class CorrelatedNoise(abc.ABC):
    """One of the kinds above.

    >>> noise: CorrelatedNoise = BandedInverse((1.0, -0.5))
    >>> noise.keys_needed, noise.arrays_stored, noise.strategy(3).tolist()
    (2, 0, [1.0, 0.5, 0.25])
    """

    @property
    @abc.abstractmethod
    def keys_needed(self) -> int:
        """How many steps' noise keys a step needs: its own, and those of the steps before."""

    @property
    @abc.abstractmethod
    def arrays_stored(self) -> int:
        """How many arrays of a parameter's shape are kept for each parameter."""

    @abc.abstractmethod
    def strategy(self, steps: int) -> toeplitz.Column:
        """The first column of `C`, in float64."""

    def inverse(self, steps: int) -> toeplitz.Column:
        """The first column of `C^-1`, in float64: what each step's noise is made of."""
        return toeplitz.inverse(self.strategy(steps), steps)

    def init(self, sums: Arrays) -> Any:
        """The state before the first step, for arrays like these."""
        return [_zeros(self.arrays_stored, total) for total in sums]

    @abc.abstractmethod
    def add(
        self,
        sums: Arrays,
        state: Any,
        keys: jax.Array,
        step: Any,
        stddev: Any,
        manual: Manual = NOT_MANUAL,
    ) -> tuple[list[jax.Array], Any]:
        """The sums with the noise of a step, and the state for the next one.

        Args:
          sums: of clipped gradients.
          state: what `init`, or `add` at the step before, returned.
          keys: `[keys_needed]`, newest first; those of steps before step 0 are not used.
          step: number of the step, from 0.
          stddev: the standard deviation of every draw.
          manual: where in a `shard_map` we are.
        """


@dataclasses.dataclass(frozen=True)
class _Banded:
    """Few coefficients, from the diagonal down; as a `tuple` of numbers, whatever was given."""

    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "coefficients", _numbers("coefficients", self.coefficients))


@dataclasses.dataclass(frozen=True)
class BandedInverse(_Banded, CorrelatedNoise):
    """`C^-1` has few bands, so a step's noise combines the draws of the last steps. Stores nothing.

    A draw is a function of the step's key and the position, so it is made again instead of stored; on
    CPUs and GPUs all draws of a value are made in one pass over the gradient (`ops.banded_gaussian`).

    >>> BandedInverse.square_root(3).coefficients
    (1.0, -0.5, -0.125)

    Attributes:
      coefficients: the first column of `C^-1`, from the diagonal down.
    """

    @staticmethod
    def square_root(bands: int) -> BandedInverse:
        """The banded inverse square root (BISR) of the matrix of prefix sums."""
        count = checks.whole_number("bands", bands, 1)
        return BandedInverse(tuple(toeplitz.inverse_square_root(count).tolist()))

    @property
    def keys_needed(self) -> int:
        """One for each band."""
        return len(self.coefficients)

    @property
    def arrays_stored(self) -> int:
        """None."""
        return 0

    def strategy(self, steps: int) -> toeplitz.Column:
        """The inverse of the bands: all of its coefficients may differ from 0."""
        return toeplitz.inverse(np.asarray(self.coefficients), steps)

    def inverse(self, steps: int) -> toeplitz.Column:
        """The bands."""
        return toeplitz.padded(np.asarray(self.coefficients), steps)

    def init(self, sums: Arrays) -> Any:
        """Nothing."""
        return ()

    def add(
        self,
        sums: Arrays,
        state: Any,
        keys: jax.Array,
        step: Any,
        stddev: Any,
        manual: Manual = NOT_MANUAL,
    ) -> tuple[list[jax.Array], Any]:
        """See `CorrelatedNoise.add`."""
        begun = jnp.arange(self.keys_needed) <= step
        scales = jnp.where(begun, _real(self.coefficients) * stddev, 0)
        return add_noise(sums, keys, scales, manual), state


class _Recursive(CorrelatedNoise):
    """Noise from a draw and what was kept of earlier noise: `y_t = z_t / c_0 + (kept part)`."""

    @property
    def keys_needed(self) -> int:
        """The step's own."""
        return 1

    @abc.abstractmethod
    def scale(self) -> float:
        """What a draw is multiplied by."""

    @abc.abstractmethod
    def recall(self, kept: jax.Array, step: Any) -> jax.Array:
        """The part of a step's noise that comes from earlier steps."""

    @abc.abstractmethod
    def keep(self, kept: jax.Array, noise: jax.Array, step: Any) -> jax.Array:
        """What is kept after a step."""

    def add(
        self,
        sums: Arrays,
        state: Any,
        keys: jax.Array,
        step: Any,
        stddev: Any,
        manual: Manual = NOT_MANUAL,
    ) -> tuple[list[jax.Array], Any]:
        """See `CorrelatedNoise.add`."""
        recalled = [self.recall(kept, step) for kept in state]
        noise = add_noise(recalled, keys[0], stddev * self.scale(), manual)
        noisy = [(total + y).astype(total.dtype) for total, y in zip(sums, noise, strict=True)]
        return noisy, [self.keep(kept, y, step) for kept, y in zip(state, noise, strict=True)]


@dataclasses.dataclass(frozen=True)
class BandedToeplitz(_Banded, _Recursive):
    """`C` has few bands (BandMF), which sampling can amplify. Keeps the noise of the last steps.

    Attributes:
      coefficients: the first column of `C`, from the diagonal down.

    >>> BandedToeplitz.square_root(3).coefficients
    (1.0, 0.5, 0.375)
    """

    @staticmethod
    def square_root(bands: int) -> BandedToeplitz:
        """The first bands of the square root of the matrix of prefix sums."""
        count = checks.whole_number("bands", bands, 1)
        return BandedToeplitz(tuple(toeplitz.square_root(count).tolist()))

    @staticmethod
    def optimized(bands: int, steps: int, *, error: str = "mean") -> BandedToeplitz:
        """Those of the least error of sums over `steps` steps, by jax_privacy.

        For participations that are at least `bands` steps apart.

        Args:
          bands: how many.
          steps: of the run.
          error: `"mean"` or `"max"`: of the squared errors of the sums up to each step.
        """
        return BandedToeplitz(optimized.banded(bands, steps, error))

    @property
    def arrays_stored(self) -> int:
        """One for each band but the first."""
        return len(self.coefficients) - 1

    def strategy(self, steps: int) -> toeplitz.Column:
        """The bands."""
        return toeplitz.padded(np.asarray(self.coefficients), steps)

    def scale(self) -> float:
        """A draw is divided by the diagonal."""
        return 1 / self.coefficients[0]

    def recall(self, kept: jax.Array, step: Any) -> jax.Array:
        """`-sum_i c_i / c_0 y_(t - i)`; `y_s` lies at place `s % (b - 1)`, and is 0 before step 0."""
        length = self.arrays_stored
        if length == 0:
            return jnp.zeros(kept.shape[1:], kept.dtype)
        ages = (step - 1 - jnp.arange(length)) % length  # age 0: the step before
        weights = -_real(self.coefficients[1:])[ages] * self.scale()
        return _combined(weights, kept)

    def keep(self, kept: jax.Array, noise: jax.Array, step: Any) -> jax.Array:
        """Takes the place of the oldest."""
        length = self.arrays_stored
        if length == 0:
            return kept
        return jax.lax.dynamic_update_index_in_dim(kept, noise, step % length, 0)


@dataclasses.dataclass(frozen=True)
class BufferedToeplitz(_Recursive):
    """`C` with `1` on the diagonal and `sum_j scales_j decays_j^(i-1)` below (BLT). Keeps `d` buffers.

    Attributes:
      decays: in (0, 1); `buf_decay` of jax_privacy's `BufferedToeplitz`.
      scales: as many; its `output_scale`.

    >>> BufferedToeplitz(decays=(0.5,), scales=(1.0,)).strategy(4).tolist()
    [1.0, 1.0, 0.5, 0.25]
    """

    decays: tuple[float, ...]
    scales: tuple[float, ...]

    @staticmethod
    def optimized(
        steps: int,
        *,
        separation: int = 1,
        max_participations: int | None = 1,
        max_buffers: int = 10,
        error: str = "max",
    ) -> BufferedToeplitz:
        """Those of a small error of sums over `steps` steps, by jax_privacy; as few as are worth it.

        Args:
          steps: of the run.
          separation: an example takes part at steps at least so far apart.
          max_participations: how often it takes part; `None`: as often as `separation` allows.
          max_buffers: how many series there may be.
          error: `"max"` or `"mean"`: of the squared errors of the sums up to each step.
        """
        limits = (separation, max_participations, max_buffers)
        return BufferedToeplitz(*optimized.buffered(steps, *limits, error))

    def __post_init__(self) -> None:
        decays, scales = (tuple(map(float, x)) for x in (self.decays, self.scales))
        if len(decays) != len(scales) or not all(0 <= decay < 1 for decay in decays):
            raise ValueError(
                "BufferedToeplitz expects decays in [0, 1) and as many scales; got "
                f"{self.decays!r} and {self.scales!r}."
            )
        _numbers("scales", (1.0, *scales))
        object.__setattr__(self, "decays", decays)
        object.__setattr__(self, "scales", scales)

    @property
    def arrays_stored(self) -> int:
        """One for each geometric series."""
        return len(self.decays)

    def strategy(self, steps: int) -> toeplitz.Column:
        """1, then the sums of the series."""
        powers = np.asarray(self.decays)[None, :] ** np.arange(steps - 1)[:, None]
        return np.concatenate([[1.0], powers @ np.asarray(self.scales)])

    def scale(self) -> float:
        """The diagonal is 1."""
        return 1.0

    def recall(self, kept: jax.Array, step: Any) -> jax.Array:
        """`-sum_j scales_j S_j`."""
        del step
        return _combined(-_real(self.scales), kept)

    def keep(self, kept: jax.Array, noise: jax.Array, step: Any) -> jax.Array:
        """`S_j = decays_j S_j + y`."""
        del step
        decays = _real(self.decays).astype(kept.dtype)
        return decays.reshape(-1, *[1] * noise.ndim) * kept + noise


def _numbers(name: str, values: Any) -> tuple[float, ...]:
    return tuple(toeplitz.column(name, values).tolist())


def _real(values: Sequence[float]) -> jax.Array:
    """In float32, or in float64 where that is switched on."""
    return jnp.asarray(np.asarray(values, np.float64), jnp.result_type(float))


def _combined(weights: jax.Array, kept: jax.Array) -> jax.Array:
    spread = weights.astype(kept.dtype).reshape(-1, *[1] * (kept.ndim - 1))
    return jnp.sum(spread * kept, axis=0)


def _zeros(number: int, total: jax.Array) -> jax.Array:
    """`[number, ...]`, on the devices where the array is."""
    one = jnp.zeros_like(total, dtype=accumulation_dtype(total.dtype))
    return jnp.broadcast_to(one, (number, *total.shape))
