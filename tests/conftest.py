"""What every test shares: strict JAX modes, precision, implementations, and the native library.

Tracer leaks are watched for (`jax_check_tracer_leaks`) where the transform itself is tested. JAX then
remembers no trace, and compiles small eager operations again at every call: six times the time for
what only uses the transform, such as benchmarks. Tests hold their data in NumPy. Rank promotion stays
allowed, because users' losses are free to use it.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import hypothesis
import jax
import jax.numpy as jnp
import pytest

pytest.register_assert_rewrite("support")

from support.quick import compile_quickly  # noqa: E402  (with rewritten asserts)

compile_quickly()

from bk_jax import _native  # noqa: E402  (after the flags of XLA)

# Folders of tests that watch for leaked tracers. Some tests in them switch the check off.
WATCHED = frozenset({"api", "batching", "models", "ops", "peft", "programs", "transform"})

# The suite is reproducible: the same examples in every run. To search further:
#   HYPOTHESIS_PROFILE=search pytest tests
hypothesis.settings.register_profile(
    "suite",
    deadline=None,
    max_examples=30,
    derandomize=True,
    database=None,
    # Fixtures select an implementation or a dtype; they may well last for all examples.
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.function_scoped_fixture,
    ],
)
hypothesis.settings.register_profile(
    "search", hypothesis.settings.get_profile("suite"), derandomize=False, max_examples=2000
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

IMPLEMENTATIONS = ["twin", pytest.param("native", marks=pytest.mark.native)]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test of the native library fails without it, unless it was switched off on purpose."""
    if item.get_closest_marker("native") is None:
        return
    found = _native.library()
    if found.switched_off:
        pytest.skip(found.problem)
    if found.module is None:
        pytest.fail(f"the native library is expected here: {found.problem}", pytrace=False)


@pytest.fixture(scope="module", autouse=True)
def _earlier_objects_are_no_garbage() -> None:
    """The check for leaked tracers collects garbage at every trace: spare it all that is there by now.

    JAX's caches grow with every test; at the end of a run a trace would take four times as long.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _x64_stays_off() -> Iterator[None]:
    """Double precision is on only inside a test that asked for it."""
    assert not jax.config.jax_enable_x64
    yield
    assert not jax.config.jax_enable_x64, "the test left jax_enable_x64 switched on"


@pytest.fixture(autouse=True)
def _leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """JAX watches for leaked tracers, or does not."""
    with jax.check_tracer_leaks(request.path.parent.name in WATCHED):
        yield


@pytest.fixture
def x64() -> Iterator[None]:
    """The test runs with 64-bit types."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=["float32", "float64"])
def real(request: pytest.FixtureRequest) -> Iterator[jnp.dtype]:
    """The test runs in single and in double precision; the value is the dtype to use."""
    with jax.enable_x64(request.param == "float64"):
        yield jnp.dtype(request.param)


@pytest.fixture(params=["float32", "bfloat16", "float16", "float64"])
def dtype(request: pytest.FixtureRequest) -> Iterator[jnp.dtype]:
    """The test runs with every dtype that the operations take."""
    with jax.enable_x64(request.param == "float64"):
        yield jnp.dtype(request.param)


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The test runs with the pure-JAX twins and with the native library."""
    if request.param == "twin":
        monkeypatch.setattr(_native, "available", lambda target: False)
    return request.param
