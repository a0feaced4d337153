"""The subject of an audit: a gradient as a function of the real rows, their data, and a key."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax import validate
from bk_jax.paths import leaf_names
from bk_jax.program.shared_data import batch_sized_leaves


class AuditError(AssertionError):
    """A broken promise; the message says what was found and the likely cause.

    >>> import bk_jax, jax.numpy as jnp
    >>> from bk_jax import audit
    >>> honest = bk_jax.clipped_value_and_grad(lambda w, x: jnp.sum(w * x))
    >>> def doubled(params, batch, **options):
    ...     value, grads = honest(params, batch, **options)
    ...     return value, 2 * grads
    >>> try:
    ...     audit.assert_sensitivity(doubled, jnp.zeros(2), jnp.ones((3, 2)), bound=1.0)
    ... except audit.AuditError as error:
    ...     print("found")
    found
    """


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is audited, and the batch to audit it with.

    Attributes:
      grad_fn: called like the function that `dp_value_and_grad` returns.
      padding: whether `grad_fn` takes `is_padding_example`; if not, rows are cut out of the arrays.
      batch_arguments: how many arguments make up the batch; several are a tuple.
      shared: names of keyword arguments that are public. Any other array with one row per example
        is cut along with the batch.
    """

    grad_fn: Callable[..., Any]
    params: Any
    batch: Any
    kwargs: Mapping[str, Any]
    padding: bool
    batch_arguments: int = 1
    shared: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """The number of rows of the batch."""
        return validate.batch_size(self.batch)

    def arrays(self, real: np.ndarray, key: Any, rows: np.ndarray | None = None) -> list[Any]:
        """The gradient of every parameter when the rows marked by `real` are examples.

        `rows` says which row of the batch stands in which place; by default each in its own.
        """
        rows = np.arange(self.size) if rows is None else rows
        taken = rows if self.padding else rows[real]
        batch = self._rows(self.batch, taken)
        options = {name: self._keyword(name, taken) for name in self.kwargs}
        if self.padding:
            options["is_padding_example"] = ~real
        if key is not None:
            options["key"] = key
        batches = batch if self.batch_arguments > 1 else (batch,)
        out = self.grad_fn(self.params, *batches, **options)
        if not isinstance(out, tuple) or len(out) < 2:
            raise TypeError(
                "grad_fn must return (value, gradients), as the function that dp_value_and_grad "
                f"returns does; got {type(out).__name__}."
            )
        return jax.tree_util.tree_leaves(out[1])

    def _rows(self, tree: Any, taken: np.ndarray) -> Any:
        return jax.tree_util.tree_map(lambda x: np.asarray(x)[taken], tree)

    def _keyword(self, name: str, taken: np.ndarray) -> Any:
        """A keyword argument; one with a row per example is indexed like the batch."""
        value = self.kwargs[name]
        if name not in self.cut_keywords:
            return value

        def cut(x: Any) -> Any:
            return np.asarray(x)[taken] if np.shape(x)[:1] == (self.size,) else x

        return jax.tree_util.tree_map(cut, value)

    @property
    def cut_keywords(self) -> list[str]:
        """The keyword arguments that are cut along with the batch."""
        if self.size < 2:
            return []
        return [
            name
            for name, value in self.kwargs.items()
            if name not in self.shared and batch_sized_leaves(value, self.size)
        ]

    def with_shared(self, names: Sequence[str]) -> Subject:
        """The same subject with these keyword arguments left as they are."""
        return dataclasses.replace(self, shared=(*self.shared, *names))

    def leaves(
        self, real: np.ndarray, key: Any, rows: np.ndarray | None = None
    ) -> list[np.ndarray]:
        """The same subject in double precision."""
        return [np.asarray(leaf, np.float64) for leaf in self.arrays(real, key, rows)]

    def flat(self, real: np.ndarray, key: Any, rows: np.ndarray | None = None) -> np.ndarray:
        """All gradients as one vector of finite numbers."""
        leaves = self.leaves(real, key, rows)
        vector = np.concatenate([leaf.ravel() for leaf in leaves] or [np.zeros(0)])
        if not np.all(np.isfinite(vector)):
            raise AuditError(
                f"the result of a batch with {int(real.sum())} real examples is not finite. Likely "
                "cause: a division by the number of real examples, which is 0 in an empty batch and "
                "private in any other; or padding rows that are multiplied by 0 instead of left out."
            )
        return vector

    def paths(self) -> list[str]:
        """The names of the parameters, in the order of `leaves`."""
        return leaf_names(self.params)

    def rounding_unit(self, key: Any) -> float:
        """The largest relative rounding error of a number in the result."""
        dtypes = [leaf.dtype for leaf in self.arrays(np.zeros(self.size, bool), key)]
        floating = [float(jnp.finfo(d).eps) for d in dtypes if jnp.issubdtype(d, jnp.floating)]
        return max(floating, default=0.0)
