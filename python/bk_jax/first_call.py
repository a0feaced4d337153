"""The first call: a message when XLA takes long to compile, and what to do about it.

JAX tells its listeners how long each compilation took. From the first private gradient of the process
on, one that took `LONG` seconds or more is written to the logger `bk_jax`, once. There is no thread: a
program that compiles is not watched from outside.

    logging.getLogger("bk_jax").setLevel(logging.ERROR)   # no such message
"""

from __future__ import annotations

import logging
from typing import Any

import jax.monitoring

LONG = 20.0  # seconds
EVENT = "/jax/core/compile/backend_compile_duration"
LOGGER = logging.getLogger("bk_jax")


class _State:
    """What this process has done already."""

    listens = False
    has_told = False


def watch() -> None:
    """Listens to JAX from the first call on."""
    if not _State.listens:
        _State.listens = True
        jax.monitoring.register_event_duration_secs_listener(_heard)


def _heard(event: str, duration_secs: float, **_: Any) -> None:
    if event != EVENT or duration_secs < LONG or _State.has_told:
        return
    _State.has_told = True
    LOGGER.warning(
        "XLA took %.0f s to compile a program of this process. To keep it for the next run, set "
        "jax.config.update('jax_compilation_cache_dir', FOLDER) before the first call. To make it "
        "smaller, put repeated layers into jax.lax.scan; grad_fn.explain(...) names parameters that "
        "are handled one by one.",
        duration_secs,
    )
