"""Canaries in a run of the trainer: a lower bound of epsilon beside what the accountant says.

Every canary is in the data or not by a coin flip of its own, drawn from the ledger's secret key, so that
a resumed run has the same. Those that are out are never sampled. A score for each canary, larger if it
looks as if it had been in, then gives the bounds of `bk_jax.audit`, from this one run.

| observed | one row for each | score | costs |
|---|---|---|---|
| `"loss"` | the start, the end | how far the canary's loss fell | two forward passes over the canaries |
| `"updates"` | step | how much updates lowered its loss, to first order | such a pass at every step |

Rows of steps are part of checkpoints, so that a resumed run has them all. Steps that nobody observed,
because an earlier call had no such audit, are counted, and the verdict says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax import audit, checks
from bk_jax.privacy import Ledger
from bk_jax.sampling import Sampler

FLIPS = 3  # folded into the ledger's key
AT_ONCE = 64  # canaries whose losses are computed together
Score = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Canaries:
    """Examples that are put into the training data to audit the run; `fit(audit=...)`.

    Attributes:
      examples: a tree of arrays like the data. The plan's `num_examples` counts them. Examples that
        nothing else resembles, such as wrongly labelled ones, show most.
      observe: `"loss"` or `"updates"`; see the table of this module.
      score: from what was observed, `[rows, canaries]`, to one number for each canary; by default the
        sum over rows.
      confidence: the probability that a bound holds.

    >>> canaries = Canaries({"x": np.eye(3), "y": np.array([1, 0, 1])})
    >>> data = {"x": np.zeros((5, 3)), "y": np.zeros(5, int)}
    >>> canaries.count, len(canaries.added_to(data)["y"])
    (3, 8)
    """

    examples: Any
    observe: str = "loss"
    score: Score | None = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        checks.choice("observe", self.observe, ("loss", "updates"))
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence must be between 0 and 1, got {self.confidence}.")

    @property
    def count(self) -> int:
        """How many canaries there are."""
        return len(jax.tree_util.tree_leaves(self.examples)[0])

    def added_to(self, data: Any) -> Any:
        """The data followed by all canaries."""
        given: Any = jax.tree_util.tree_structure(self.examples)
        expected: Any = jax.tree_util.tree_structure(data)
        if given != expected:
            raise ValueError(
                f"canaries must be a tree of arrays like the data; got {given} for data of {expected}."
            )
        return jax.tree_util.tree_map(lambda *x: np.concatenate(x), data, self.examples)

    def flips(self, ledger: Ledger) -> np.ndarray[Any, Any]:
        """Which canaries are in."""
        key = jax.random.fold_in(ledger.partition_key(), FLIPS)
        return np.asarray(jax.random.bits(key, (self.count,), jnp.uint32) & 1 == 1)


class Audit(NamedTuple):
    """What a run with canaries shows. NOT PRIVATE: it says how well canaries can be told apart.

    Attributes:
      epsilon: a lower bound of epsilon at the plan's delta, that holds with the confidence.
      mu: a lower bound of mu, if the run is Gaussian privacy (one-run f-DP).
      gaussian_epsilon: the epsilon of that mu.
      estimated_epsilon: the same by the bootstrap, as if canaries were runs of their own: an estimate.
      spent: what the accountant says.
      delta: the plan's.
      confidence: of each bound.
      scores: one for each canary.
      included: which canaries were in.
      seen: how many rows the scores are made of: steps, or start and end.
      unseen: steps of the model that were not observed. Bounds hold without them, but may be far lower.

    >>> scores, included = np.array([0.5, -0.1]), np.array([True, False])
    >>> found = Audit(0.2, 0.1, 0.1, 0.3, 3.0, 1e-5, 0.95, scores, included)
    >>> found.describe()
    'audit: epsilon is at least 0.2 (95% confidence, 2 canaries), spent 3 at delta 1e-05: not refuted'
    """

    epsilon: float
    mu: float
    gaussian_epsilon: float
    estimated_epsilon: float
    spent: float
    delta: float
    confidence: float
    scores: np.ndarray[Any, Any]
    included: np.ndarray[Any, Any]
    seen: int = 2
    unseen: int = 0

    @property
    def is_refuted(self) -> bool:
        """Whether the run is less private than the accountant says."""
        return self.epsilon > self.spent

    def describe(self) -> str:
        """The bound beside what was spent, in one line."""
        if not self.seen:
            return f"audit: no verdict, as none of {self.unseen} steps was observed"
        verdict = "REFUTED" if self.is_refuted else "not refuted"
        if self.unseen:
            verdict += (
                f" by {self.seen} of {self.seen + self.unseen} steps; the others were not observed"
            )
        return (
            f"audit: epsilon is at least {self.epsilon:.3g} ({self.confidence:.0%} confidence, "
            f"{len(self.scores)} canaries), spent {self.spent:.3g} at delta {self.delta:g}: {verdict}"
        )


@dataclasses.dataclass(frozen=True)
class Without:
    """A sampler without the canaries that are out, which are the last examples."""

    sampler: Sampler
    included: np.ndarray[Any, Any]

    @property
    def num_examples(self) -> int:
        """Size of the data set, all canaries counted."""
        return self.sampler.num_examples

    @property
    def max_batch_size(self) -> int | None:
        """As of the sampler."""
        return self.sampler.max_batch_size

    def indices(self, key: jax.Array) -> np.ndarray[Any, Any]:
        """Those of the sampler that are in."""
        found = self.sampler.indices(key)
        number = found - (self.num_examples - len(self.included))
        return found[(number < 0) | self.included[np.maximum(number, 0)]]


class Watched(NamedTuple):
    """What a checkpoint keeps of an audit: rows `[steps, canaries]`, and how many steps have none."""

    rows: np.ndarray[Any, Any]
    unseen: np.ndarray[Any, Any]


class Observer:
    """Watches the canaries of a run.

    Args:
      canaries: what to watch.
      included: their coin flips.
      grad_fn: the private gradient, whose loss is asked.
      start: the parameters that the run starts from.
      kwargs: further arguments of the loss.
    """

    def __init__(
        self,
        canaries: Canaries,
        included: np.ndarray[Any, Any],
        grad_fn: Any,
        start: Any,
        kwargs: Mapping[str, Any],
    ):
        self.included = included
        self._canaries = canaries
        self._losses = jax.jit(lambda params: _losses(grad_fn, params, canaries.examples, kwargs))
        self._fall = jax.jit(lambda params, to: -_slope(self._losses, params, to))
        self._start = start
        self._rows: list[np.ndarray] = []
        self._unseen = 0

    def resume(self, kept: Watched | None, steps: int) -> None:
        """Goes on with what the checkpoint kept that was made after so many steps, if it did."""
        if self._canaries.observe == "loss":
            return
        if kept is None or kept.rows.shape[1:] != self.included.shape:
            self._unseen = steps
        else:
            self._rows, self._unseen = list(kept.rows), int(kept.unseen)

    def kept(self) -> Watched | None:
        """What the next checkpoint has to keep."""
        if self._canaries.observe == "loss":
            return None
        return Watched(self._all_rows(), np.asarray(self._unseen))

    def _all_rows(self) -> np.ndarray:
        return np.asarray(self._rows, np.float64).reshape(-1, self._canaries.count)

    def step(self, before: Any, after: Any) -> None:
        """Observes a step, if updates are observed."""
        if self._canaries.observe == "updates":
            self._rows.append(np.asarray(self._fall(before, after), np.float64))

    def result(self, params: Any, spent: float, delta: float) -> Audit:
        """What the run shows."""
        if self._canaries.observe == "loss":
            start, end = (np.asarray(self._losses(p), np.float64) for p in (self._start, params))
            self._rows = [start, -end]
        rows, nothing = self._all_rows(), np.zeros((1, self._canaries.count))
        score = self._canaries.score or (lambda rows: np.sum(rows, axis=0))
        scores = np.asarray(score(rows if len(rows) else nothing))
        found = _audit(scores, self.included, spent, delta, self._canaries.confidence)
        return found._replace(seen=len(rows), unseen=self._unseen)


def _audit(
    scores: np.ndarray, included: np.ndarray, spent: float, delta: float, confidence: float
) -> Audit:
    known: dict[str, Any] = {"confidence": confidence}
    epsilon = audit.one_run_epsilon(scores, included, delta=delta, **known)
    mu = audit.one_run_mu(scores, included, **known)
    estimate = 0.0
    if 0 < np.sum(included) < len(included):
        estimate = audit.estimated_mu(scores[included], scores[~included], **known)
    shown, estimated = (audit.gaussian_epsilon(m, delta) for m in (mu, estimate))
    return Audit(epsilon, mu, shown, estimated, spent, delta, confidence, scores, included)


def _losses(grad_fn: Any, params: Any, examples: Any, kwargs: Mapping[str, Any]) -> jax.Array:
    """The loss of each canary, `[count]`; a loss that draws random numbers has the same key for all."""
    signature = grad_fn.signature
    others = () if signature.prng_argnum is None else (jax.random.key(0),)

    def loss(example: Any) -> jax.Array:
        if signature.keep_batch_dim:
            example = jax.tree_util.tree_map(lambda x: x[None], example)
        return grad_fn.loss_fn(params, example, *others, **kwargs)

    arrays = jax.tree_util.tree_map(jnp.asarray, examples)
    found: jax.Array = jax.lax.map(loss, arrays, batch_size=AT_ONCE)
    return found


def _slope(losses: Callable[[Any], jax.Array], params: Any, to: Any) -> jax.Array:
    """How the losses change from one point to another, to first order."""
    change = jax.tree_util.tree_map(_change, params, to)
    slope: jax.Array = jax.jvp(losses, (params,), (change,))[1]
    return slope


def _change(before: jax.Array, after: jax.Array) -> Any:
    if jnp.issubdtype(before.dtype, jnp.floating):
        return after - before
    return np.zeros(before.shape, jax.dtypes.float0)
