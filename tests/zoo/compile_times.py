"""What privacy adds to tracing and compiling: seconds of each model of the zoo, plain and private.

    PYTHONPATH=python:tests .venv-peers-jax/bin/python -m zoo.compile_times [part of a name]

Seconds are of the processor, in all threads, so that other work on the machine counts little. Plain is
`jax.value_and_grad` of the same loss. The first model pays for what JAX does once: it runs twice.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from typing import Any

import jax

import bk_jax
import zoo.conftest  # noqa: F401  (settings of Keras, before it is imported)
from zoo.zoo_test import MODELS


def seconds(step: Any, *args: Any) -> tuple[float, float]:
    """Of tracing and lowering a step, and of compiling it."""
    gc.collect()
    start = time.process_time()
    lowered = jax.jit(step).lower(*args)
    middle = time.process_time()
    lowered.compile()
    return middle - start, time.process_time() - middle


def ratios(name: str) -> tuple[float, float]:
    """Private by plain, of tracing and of compiling."""
    import keras

    keras.utils.clear_session()
    entry = MODELS[name]()
    private = bk_jax.dp_value_and_grad(
        entry.loss, l2_clip_norm=1.0, noise_multiplier=1.0, normalize_by=7.0
    )
    key = bk_jax.random.key(0)
    plain = seconds(jax.value_and_grad(entry.loss), entry.params, entry.batch)
    ours = seconds(lambda p, b, k: private(p, b, key=k), entry.params, entry.batch, key)
    trace, compiled = (a / b for a, b in zip(ours, plain, strict=True))
    print(
        f"{name}: trace {ours[0]:.2f} s / {plain[0]:.2f} s = {trace:.1f}, "
        f"compile {ours[1]:.2f} s / {plain[1]:.2f} s = {compiled:.1f}",
        flush=True,
    )
    return trace, compiled


def main() -> None:
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [name for name in MODELS if part in name]
    if not chosen:
        sys.exit(f"no model has {part!r} in its name")
    ratios(chosen[0])  # what JAX does once
    measured = {name: ratios(name) for name in chosen}
    for index, what in enumerate(("trace", "compile")):
        by_name = {name: pair[index] for name, pair in measured.items()}
        worst = sorted(by_name, key=by_name.__getitem__)[-3:][::-1]
        middle = statistics.median(by_name.values())
        print(f"{what} of {len(chosen)}: median {middle:.1f}, largest", end=" ")
        print(", ".join(f"{by_name[name]:.1f} ({name})" for name in worst))


if __name__ == "__main__":
    main()
