"""Nothing here runs without JAX's CUDA plugin and `bk_jax._cuda`; nothing here needs a GPU."""

from __future__ import annotations

import pytest

from benchmarks.gpu.programs import missing


@pytest.fixture(autouse=True, scope="session")
def _can_compile() -> None:
    if reason := missing():
        pytest.skip(reason)
