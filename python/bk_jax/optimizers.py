"""Optimizers whose update can be made in one pass with the noise: optax's own, with a recipe.

    optimizer = bk_jax.optimizers.adam(1e-3)
    update = bk_jax.private_update(grad_fn, optimizer)

Each function returns what optax's function of that name returns: `init`, `update` and the state are the
same, so checkpoints can be exchanged. All that is added is a note of what the update does, which
`bk_jax.private_update` reads. Options of optax that have no fused form (`mu_dtype`, `mask`, `nesterov`
of Adam, ...) are passed on, without a note.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax._extras import require
from bk_jax.ops.noisy_update import MOMENTS, Numbers

__all__ = ["adam", "adamw", "sgd"]

# Where optax keeps the moments, in the first state of a chain.
FIELDS = {0: (), 1: ("trace",), 2: ("mu", "nu")}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What an optimizer does.

    Attributes:
      kind: its name in `bk_jax.ops.noisy_update`.
      learning_rate: a number, or a schedule: a function of the count in the state.
      decay: momentum, or `b1`.
      second_decay: `b2`.
      epsilon: `eps`.
      epsilon_root: `eps_root`.
      weight_decay: decoupled, as in AdamW.
    """

    kind: str
    learning_rate: Any
    decay: Any = 0.0
    second_decay: Any = 0.0
    epsilon: Any = 0.0
    epsilon_root: Any = 0.0
    weight_decay: Any = 0.0

    def moments(self, state: Any) -> list[Any]:
        """The moments in a state of optax, each a tree like the parameters."""
        try:
            return [getattr(state[0], name) for name in FIELDS[MOMENTS[self.kind]]]
        except (AttributeError, IndexError, TypeError) as error:
            raise TypeError(
                f"opt_state must be that of the optimizer, which is of kind {self.kind!r}: what its "
                f"init(params) returned, or an update after it; got {type(state).__name__} ({error})."
            ) from error

    def following(self, state: Any, moments: Sequence[Any]) -> Any:
        """The state after an update that made these moments."""
        fields = dict(zip(FIELDS[MOMENTS[self.kind]], moments, strict=True))
        first, *others = state
        if "nu" in fields:
            fields["count"] = _next(first.count)
        if callable(self.learning_rate):
            others[-1] = others[-1]._replace(count=_next(others[-1].count))
        return (first._replace(**fields), *others)

    def numbers(self, state: Any, stddev: Any, divisor: Any) -> Numbers:
        """The scalars of the next update, as optax computes them."""
        rate = self.learning_rate
        step = -1 * (rate(state[-1].count) if callable(rate) else rate)
        scale = 1 / jnp.asarray(divisor, jnp.float32)
        own = Numbers(
            stddev, scale, step, self.decay,
            epsilon=self.epsilon, epsilon_root=self.epsilon_root, weight_decay=self.weight_decay,
        )  # fmt: skip
        if MOMENTS[self.kind] < 2:
            return own
        count = _next(state[0].count)
        return own._replace(
            gain=1 - self.decay,
            second_decay=self.second_decay,
            second_gain=1 - self.second_decay,
            unbias=_unbias(self.decay, count),
            second_unbias=_unbias(self.second_decay, count),
        )

    def scalars(self) -> tuple[Any, ...]:
        """All that decides in which dtype optax would compute."""
        numbers = dataclasses.astuple(self)[2:]
        return numbers if callable(self.learning_rate) else (self.learning_rate, *numbers)


@dataclasses.dataclass(frozen=True)
class RecipeUpdate:
    """The `update` of a transformation of optax, and what it does."""

    update: Callable[..., Any]
    recipe: Recipe

    def __call__(self, updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        """As optax's own."""
        return self.update(updates, state, params, **extra)


def recipe_of(optimizer: Any) -> Recipe | None:
    """What a transformation does, if it says so."""
    return getattr(optimizer.update, "recipe", None)


def sgd(learning_rate: Any, momentum: Any = None, nesterov: bool = False, **options: Any) -> Any:
    """`optax.sgd` with a recipe; the same arguments.

    >>> import jax.numpy as jnp
    >>> optimizer = sgd(0.5, momentum=0.9)
    >>> state = optimizer.init(jnp.ones(2))
    >>> updates, state = optimizer.update(jnp.asarray([2.0, 4.0]), state)
    >>> print(updates)
    [-1. -2.]
    """
    made = _optax().sgd(learning_rate, momentum, nesterov, **options)
    if momentum is None:
        return _noted(made, Recipe("sgd", learning_rate), options)
    kind = "nesterov" if nesterov else "momentum"
    return _noted(made, Recipe(kind, learning_rate, momentum), options)


def adam(
    learning_rate: Any,
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-8,
    eps_root: Any = 0.0,
    **options: Any,
) -> Any:
    """`optax.adam` with a recipe; the same arguments, from `mu_dtype` on by name.

    >>> import jax.numpy as jnp
    >>> optimizer = adam(0.5)
    >>> updates, state = optimizer.update(jnp.asarray([2.0, -4.0]), optimizer.init(jnp.ones(2)))
    >>> print([f"{update:.2f}" for update in updates])
    ['-0.50', '0.50']
    """
    made = _optax().adam(learning_rate, b1, b2, eps, eps_root, **options)
    return _noted(made, Recipe("adam", learning_rate, b1, b2, eps, eps_root), options)


def adamw(
    learning_rate: Any,
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-8,
    eps_root: Any = 0.0,
    *,
    weight_decay: Any = 1e-4,
    **options: Any,
) -> Any:
    """`optax.adamw` with a recipe; the same arguments, from `mu_dtype` on by name.

    >>> import jax.numpy as jnp
    >>> optimizer, params = adamw(0.5, weight_decay=0.1), jnp.ones(2)
    >>> updates, _ = optimizer.update(jnp.asarray([2.0, -4.0]), optimizer.init(params), params)
    >>> print([f"{update:.2f}" for update in updates])
    ['-0.55', '0.45']
    """
    made = _optax().adamw(
        learning_rate, b1, b2, eps, eps_root, weight_decay=weight_decay, **options
    )
    if callable(weight_decay):
        return made
    is_adam = isinstance(weight_decay, int | float) and weight_decay == 0  # optax adds nothing then
    kind = "adam" if is_adam else "adamw"
    return _noted(made, Recipe(kind, learning_rate, b1, b2, eps, eps_root, weight_decay), options)


def _optax() -> Any:
    return require("optax", "optax")


def _noted(made: Any, recipe: Recipe, options: dict[str, Any]) -> Any:
    """The transformation with its recipe, unless an option changes what it does."""
    if recipe.learning_rate is None or any(
        value not in (None, False) for value in options.values()
    ):
        return made
    return made._replace(update=RecipeUpdate(made.update, recipe))


def _next(count: Any) -> jax.Array:
    """One more, and never less, as optax counts."""
    limit = jnp.iinfo(count.dtype).max
    return jnp.where(count < limit, count + 1, limit).astype(count.dtype)


@functools.partial(jax.jit, inline=True)  # compiled, as optax has it: `1 - decay**count` cancels
def _unbias(decay: Any, count: Any) -> jax.Array:
    return 1 / jnp.asarray(1 - decay**count, jnp.float32)
