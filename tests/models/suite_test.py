"""Every model: norms and clipped sums against `vmap`, all methods, microbatches, and its routes."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from support import oracle
from support.routes import routes_of
from support.tolerance import assert_within, eps, norm_rtol

import bk_jax
from bk_jax.planning.methods import METHODS
from models import adapters, convolutions, flow, mlp, recurrent, stacked, transformers
from models.model import Model, cast

FAMILIES = (mlp, transformers, stacked, convolutions, recurrent, adapters, flow)
MODELS = [make for family in FAMILIES for make in family.MODELS]

# Every program runs once: what counts is the time to compile it. Plain loops compile five times
# faster than XLA's fusion emitters do.
QUICK = oracle.QUICK | {
    "xla_cpu_use_fusion_emitters": False,
    "xla_llvm_disable_expensive_passes": True,
}
# The only route of each kind that the method `bk` knows.
ROUTES = {
    "dense": "ghost",
    "conv": "ghost",
    "tied": "ghost",
    "lookup": "sparse",
    "leaf": "leaf",
    "unused": "none",
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, the gradients of its examples in float64, and their norms."""

    model: Model
    truth: oracle.PerExample
    norms: np.ndarray

    @functools.cached_property
    def clip_norm(self) -> float:
        """Some examples are clipped and some are not."""
        return float(np.float32((self.norms.min() + self.norms.max()) / 2))

    def grad_fn(self, **options: Any) -> Any:
        options |= {"l2_clip_norm": self.clip_norm, "return_stats": True}
        return bk_jax.clipped_value_and_grad(self.model.loss, **self.model.options, **options)


def make_case(model: Model) -> Case:
    truth = oracle.per_example(model.loss, model.args, oracle.Arguments(**model.options))
    norms = np.sqrt(oracle.squared_norms(list(truth.gradients.values()), len(truth.losses)))
    assert np.all(np.isfinite(norms) & (norms > 1e-3))
    return Case(model, truth, norms)


@pytest.fixture(scope="module", params=MODELS, ids=lambda make: make.__name__)
def case(request: pytest.FixtureRequest) -> Case:
    """One oracle for all tests of a model: they follow each other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oracle, "QUICK", QUICK)
        return make_case(request.param())


@pytest.fixture
def unwatched() -> Iterator[None]:
    """JAX's caches are off while tracers are watched for leaks, as in `test_float32`.

    Methods of one model have most of their trace in common.
    """
    with jax.check_tracer_leaks(False):
        yield


@pytest.fixture
def double(x64: None, unwatched: None) -> None:
    """Double precision, and JAX's caches."""


def check(case: Case, grad_fn: Callable[..., Any], dtype: Any) -> None:
    """Compares value, norms, factors and clipped sums with the oracle."""
    model, truth, norms = case.model, case.truth, case.norms
    out = jax.jit(grad_fn, compiler_options=QUICK)(*cast(model.args, dtype))
    value, grads, stats = jax.tree.map(np.asarray, out)
    rounding = model.dtype or dtype
    norm_tol = norm_rtol(rounding)
    sum_tol = 2 * norm_tol

    assert_within(value, truth.losses.mean(), sum_tol * np.abs(truth.losses).mean(), "value")
    assert_within(stats.norms, norms, norm_tol * norms, "norms")
    factors = stats.clip_factors.astype(np.float64)
    ideal = oracle.ideal_factors(norms, case.clip_norm, "abadi")
    slack = oracle.FACTOR_SLACK[np.dtype(dtype).name] + norm_tol
    assert np.all(factors <= ideal * (1 + norm_tol)), f"factors {factors} exceed {ideal}"
    assert np.all(factors >= ideal * (1 - slack)), f"factors {factors} fall short of {ideal}"

    got = oracle.named_leaves(grads)
    assert not any(np.any(got[path]) for path in got.keys() - truth.gradients.keys())
    whole = eps(rounding) * np.sum(factors * norms)  # some gradients vanish but for rounding
    for path, gradients in truth.gradients.items():
        scale = np.sum(factors * np.sqrt(oracle.squared_norms([gradients], len(norms))))
        expected = oracle.weighted(factors, gradients)
        assert_within(got[path], expected, sum_tol * scale + whole, f"clipped sum of {path}")


def ways(case: Case, method: str) -> set[tuple[Any, ...]]:
    """How a method treats each parameter."""
    how = METHODS[method]
    routes = routes_of(case.grad_fn(method=method), *cast(case.model.args, np.float64))
    return {(*route, how.second_backward, how.loop) for route in routes}


def different_methods(case: Case) -> Iterator[str]:
    """All methods but those that treat every parameter as one before did.

    Parameters are treated independently of each other, so mixtures of methods are left out when
    their parts are not; at these sizes many methods are even the same.
    """
    known: set[tuple[Any, ...]] = set()
    for method in sorted(METHODS, key=lambda name: "mix" in name):
        new = ways(case, method) - known
        if new and method != "auto":  # which the other tests run
            known |= new
            yield method


@functools.cache
def mixed_case() -> Case:
    """A model on which every method does something else."""
    return make_case(flow.custom_vjp_inside())


def test_float32(case):
    check(case, case.grad_fn(), np.float32)


def test_microbatches(double, case):
    check(case, case.grad_fn(microbatch_size=2), np.float64)


def test_every_method(double, case):
    for method in different_methods(case):
        check(case, case.grad_fn(method=method), np.float64)


@pytest.mark.parametrize("method", METHODS)
def test_no_method_is_another(double, method):
    """Here none is left out; `auto` goes by time, and may choose as another does."""
    case = mixed_case()
    others = METHODS.keys() - {"auto"}
    assert len({frozenset(ways(case, name)) for name in others}) == len(others)
    check(case, case.grad_fn(method=method), np.float64)


def test_routes(unwatched, case):
    """A layer that silently falls to the leaf tap fails here."""
    explanation = case.grad_fn(method="bk").explain(*case.model.args)
    kinds: dict[str, str] = {}
    for row in explanation.rows:
        known = [kinds[row.path]] if row.path in kinds else []
        kinds[row.path] = "+".join(dict.fromkeys([*known, row.kind]))
    matches = {path: first_match(case.model.kinds, path) for path in kinds}
    assert kinds == {path: kind for path, (_, kind) in matches.items()}, str(explanation)
    assert {pattern for pattern, _ in matches.values()} == set(case.model.kinds)
    assert explanation.routes() == {path: ROUTES[kind] for path, kind in kinds.items()}


def first_match(kinds: dict[str, str], path: str) -> tuple[str, str]:
    """The first pattern that fits the path, with its kind."""
    matches = (item for item in kinds.items() if fnmatch.fnmatchcase(path, item[0]))
    return next(matches, ("", "not listed"))
