"""From sums of clipped gradients to private gradients, with noise that is correlated over steps."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import validate
from bk_jax.grad_fn import DPValueAndGrad
from bk_jax.mechanisms.noise import CorrelatedNoise
from bk_jax.mechanisms.participation import Participation
from bk_jax.sharding.mesh_check import check_mesh


def correlated(
    grad_fn: DPValueAndGrad, noise: CorrelatedNoise, participation: Participation
) -> CorrelatedRelease:
    """Releases the sums of `grad_fn` with correlated noise instead of independent noise.

    Every draw has the deviation `noise_multiplier * clip norm * sensitivity of C`, so that the whole run
    is one Gaussian mechanism of `grad_fn`'s noise multiplier, and `event()` says so.

    >>> import bk_jax
    >>> from bk_jax import mechanisms
    >>> grad_fn = bk_jax.dp_value_and_grad(lambda w, x: (w * x).sum(), noise_multiplier=2.0)
    >>> noise = mechanisms.BandedInverse.square_root(bands=4)
    >>> private = correlated(grad_fn, noise, mechanisms.MinSeparation(steps=100, separation=25))
    >>> private.event()
    GaussianDpEvent(noise_multiplier=2.0)
    >>> w, state, key = jnp.zeros(3), private.init(jnp.zeros(3)), bk_jax.random.key()
    >>> for step in range(3):
    ...     sums = grad_fn.clipped_sums(w, jnp.ones((4, 3))).sums
    ...     keys = mechanisms.recent_keys(key, step, noise.keys_needed)
    ...     grads, state = private.release(sums, state, keys=keys, step=step)

    Args:
      grad_fn: from `dp_value_and_grad`, with a clip norm and a noise multiplier that are the same at all
        steps. Do not call it with a key: that would add noise of another kind.
      noise: which noise.
      participation: at which steps an example takes part; your batches must keep to it.
    """
    if not isinstance(grad_fn, DPValueAndGrad):
        raise TypeError(
            "correlated expects grad_fn to be what dp_value_and_grad returned, not wrapped in jit or in "
            f"another function; got {type(grad_fn).__name__}."
        )
    for name in ("l2_clip_norm", "noise_multiplier"):
        leaves = jax.tree_util.tree_leaves(getattr(grad_fn, name))
        if any(validate.concrete(leaf, name) is None for leaf in leaves):
            raise ValueError(
                f"correlated noise needs one {name} for all steps, a number that is known now; got a "
                "traced one."
            )
    return CorrelatedRelease(grad_fn, noise, participation)


@dataclasses.dataclass(frozen=True)
class CorrelatedRelease:
    """What `correlated` returns.

    >>> import bk_jax, jax.numpy as jnp
    >>> from bk_jax import mechanisms
    >>> grad_fn = bk_jax.dp_value_and_grad(lambda w, x: jnp.sum(w * x), noise_multiplier=2.0)
    >>> noise = mechanisms.BandedInverse.square_root(2)
    >>> release = mechanisms.correlated(grad_fn, noise, mechanisms.SingleParticipation(10))
    >>> round(release.draw_stddev() / release.sensitivity(), 6)
    2.0
    """

    grad_fn: DPValueAndGrad
    noise: CorrelatedNoise
    participation: Participation

    def sensitivity(self) -> float:
        """How far one example moves `C x`, in units of the clip norm."""
        return self.participation.sensitivity(self.noise.strategy(self.participation.steps))

    def draw_stddev(self) -> float:
        """The standard deviation of every draw, before the division by `normalize_by`."""
        return float(self.grad_fn.noise_stddev()) * self.sensitivity()

    def event(self) -> Any:
        """What the whole run releases, as a `dp_accounting.DpEvent`."""
        return self.participation.event(float(self.grad_fn.noise_multiplier))

    def init(self, params: Any) -> Any:
        """The state before the first step; keep it as secret as the keys, unless it is empty."""
        leaves = jax.tree_util.tree_leaves(params)
        return self.noise.init([jnp.asarray(leaves[i]) for i in _real_places(leaves)])

    def release(
        self, sums: Any, state: Any, *, keys: jax.Array, step: Any, like: Any = None
    ) -> tuple[Any, Any]:
        """The private gradient of a step, and the state for the next one.

        Args:
          sums: from `grad_fn.clipped_sums`, or several added up.
          state: from `init`, or from the step before.
          keys: the noise keys of this step and those before, newest first, `noise.keys_needed` of them:
            `ledger.recent_noise_keys(noise.keys_needed)` or `recent_keys`.
          step: number of the step, from 0; steps come in order, and none twice.
          like: the parameters, whose dtypes the result has; default: the dtypes of the sums.
        """
        _check_keys(keys, self.noise.keys_needed)
        check_mesh(sums, state)
        manual = self.grad_fn.check_release(keys[0])
        leaves, treedef = jax.tree_util.tree_flatten(sums)
        places = _real_places(leaves)
        totals = [leaves[i] for i in places]
        stddev = self.draw_stddev()
        with jax.named_scope("bk.noise"):
            noisy, state = self.noise.add(totals, state, keys, step, stddev, manual)
        for i, total in zip(places, noisy, strict=True):
            leaves[i] = total
        silent = dataclasses.replace(self.grad_fn, noise_multiplier=0.0)
        made = jax.tree_util.tree_unflatten(treedef, leaves)
        return silent.release(made, like=sums if like is None else like), state

    def skip(self, params: Any, state: Any, *, keys: jax.Array, step: Any) -> Any:
        """The state after a step that was paid for and whose gradients were lost.

        Its noise may have been seen, so its draw stays part of the noise of later steps.
        """
        nothing = jax.tree_util.tree_map(jnp.zeros_like, params)
        return self.release(nothing, state, keys=keys, step=step)[1]


def recent_keys(key: jax.Array, step: Any, count: int) -> jax.Array:
    """The noise keys of the last `count` steps, newest first, for a run without a ledger.

    The key of step `t` is `jax.random.fold_in(key, t)`. A run with a ledger takes
    `ledger.recent_noise_keys(count)`.

    Args:
      key: one secret key for the whole run, used for nothing else.
      step: number of the step, from 0; may be traced.
      count: `noise.keys_needed`.

    >>> import bk_jax
    >>> recent_keys(bk_jax.random.key(), step=7, count=3).shape
    (3,)
    """
    numbers = jnp.maximum(jnp.asarray(step, jnp.int32) - jnp.arange(count), 0)
    return jax.vmap(lambda number: jax.random.fold_in(key, number))(numbers)


def _real_places(leaves: Any) -> list[int]:
    return [i for i, x in enumerate(leaves) if jnp.issubdtype(jnp.asarray(x).dtype, jnp.floating)]


def _check_keys(keys: Any, needed: int) -> None:
    is_keys = hasattr(keys, "dtype") and jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
    if not is_keys or keys.shape != (needed,):
        raise ValueError(
            f"release expects keys to be an array of {needed} PRNG keys, newest first, from "
            "ledger.recent_noise_keys(noise.keys_needed) or mechanisms.recent_keys; got "
            f"{getattr(keys, 'dtype', type(keys).__name__)} of shape {jnp.shape(keys)}."
        )
