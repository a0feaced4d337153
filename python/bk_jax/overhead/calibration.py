"""Calibration: `bk_jax.calibrate`, the rates of this machine for the predictions of `explain`.

Every kind of work runs next to one product of XLA's, so that a disturbance of the machine meets both:
what is measured is a ratio, and only the product itself is measured in seconds.

A GPU runs the same trials with 64 times as many examples: at the CPU's sizes it would only start
kernels. Its layers are predicted by `device_seconds`, which takes shares of peaks: the peaks that are
stored for it are those whose share is what was measured. No GPU has been measured yet.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax import ops, random
from bk_jax.overhead.timing import compare_all
from bk_jax.planning import machine_rates
from bk_jax.planning.default_rates import nominal_rates
from bk_jax.planning.device_seconds import SHARE
from bk_jax.planning.devices import Device
from bk_jax.planning.rates import Rates, rate_at
from bk_jax.planning.target import gpu_kind

WIDTH = 768  # of dense layers
TOKENS = 1024  # of a batch
LENGTHS = (16, 128, 256, 1024)  # tokens of an example, for norms
IMAGES = 4
KERNELS = ((56, 64), (28, 128), (14, 256), (7, 512), (4, 512))  # side of an image, channels
ELEMENTS = 1 << 21  # of elementwise work
ROWS = 8192  # of a table
DRAWS = 4  # of noise
CHAIN = 64  # operations one after the other
GPU_SCALE = 64  # times as many examples
BACKENDS = ("cpu", "gpu", "cuda")


class Trial(NamedTuple):
    """A program, and how much work it does: flops, bytes or elements."""

    run: Callable[..., Any]
    args: tuple[Any, ...]
    amount: float
    size: int = 0  # where it stands in a table; 0: the rate is one number


def calibrate(budget: float = 6.0, *, save: bool = True) -> Rates:
    """Measures this machine for the predictions of `grad_fn.explain`, and keeps the rates.

    Takes `budget` seconds and some for compiling. Run it once, when little else runs. Where JAX runs
    on a GPU it is the GPU that is measured.

    >>> import bk_jax
    >>> rates = bk_jax.calibrate(budget=0.1, save=False)
    >>> rates.product > 0, rates.source.startswith("calibrated on ")
    (True, True)

    Args:
      budget: approximate seconds of measuring.
      save: whether to store the rates for later runs, in the folder `bk_jax` of the user's cache
        (`XDG_CACHE_HOME`, or `~/.cache`), for this CPU or GPU and these versions of bk_jax and jaxlib.

    Returns:
      The rates, a `bk_jax.planning.rates.Rates`.

    Raises:
      OSError: if they cannot be stored.
      RuntimeError: if JAX runs neither on a CPU nor on an NVIDIA GPU.
    """
    if not isinstance(budget, (int, float)) or not budget > 0:
        raise ValueError(f"budget must be a positive number of seconds, got {budget!r}.")
    if jax.default_backend() not in BACKENDS:
        raise RuntimeError(
            f"calibrate measures CPUs and GPUs, but JAX runs on {jax.default_backend()!r}. Set "
            "JAX_PLATFORMS=cpu to calibrate the CPU."
        )
    kind = gpu_kind()
    rates = _rates(_measure(_trials(1 if kind is None else GPU_SCALE), budget), kind)
    if save:
        machine_rates.store(rates, kind)
    return rates


def _measure(trials: dict[str, Trial], budget: float) -> dict[str, tuple[int, float]]:
    """Amount per second of each trial, with its size, by name."""
    compiled = {name: _compiled(trial) for name, trial in trials.items()}
    baseline = compiled["product"]
    timings = compare_all(baseline, compiled, budget=budget)
    seconds = min(timing.baseline for timing in timings.values())
    found = {}
    for name, timing in timings.items():
        trial = trials[name]
        took = seconds * (1.0 if name == "product" else timing.ratio)
        rate = took / trial.amount if name == "operation" else trial.amount / took
        found[name] = (trial.size, rate)
    return found


def _compiled(trial: Trial) -> Callable[[], Any]:
    program = jax.jit(trial.run).lower(*trial.args).compile()
    return lambda: program(*trial.args)


def _rates(found: dict[str, tuple[int, float]], kind: str | None) -> Rates:
    values: dict[str, Any] = {}
    for name, (size, rate) in found.items():
        field = name.split(" ")[0]
        values[field] = (*values.get(field, ()), (size, rate)) if size else rate
    tables = {field: tuple(sorted(v)) for field, v in values.items() if isinstance(v, tuple)}
    source = f"calibrated on {machine_rates.cpu_name() if kind is None else kind}"
    rates = Rates(source=source, is_measured=True, **{**values, **tables})
    return rates if kind is None else dataclasses.replace(rates, device=_device(rates, kind))


def _device(rates: Rates, kind: str) -> Device:
    """The GPU of the data sheet, with peaks whose usual share is what was measured."""
    nominal = nominal_rates(kind).device
    assert nominal is not None
    return dataclasses.replace(
        nominal,
        tf32=rates.product / SHARE,
        bf16=rates.product_16 / SHARE,
        fp32=rate_at(rates.conv_norm, 196) / SHARE,
        gathering=1.0,
        memory=rates.memory / SHARE,
        launch=rates.operation,
    )


def _trials(scale: int) -> dict[str, Trial]:
    tokens = TOKENS * scale
    trials = {**_products(scale), **_elements(scale)}
    for examples, length in ((tokens // 8, 1), (8 * scale, TOKENS // 8)):
        trials |= _gradients(examples, length)
    for length in LENGTHS:
        trials |= _norms(tokens, length)
    for side, channels in KERNELS:
        trials |= _convolutions(IMAGES * scale, side, channels)
    return trials


def _normal(*shape: int) -> jax.Array:
    """Never zeros: some clocks rise when nothing toggles."""
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape, dtype=np.float32))


def _products(scale: int) -> dict[str, Trial]:
    x, w = _normal(TOKENS * scale, WIDTH), _normal(WIDTH, WIDTH)
    flops = 2 * TOKENS * scale * WIDTH * WIDTH
    short = tuple(x.astype(jnp.bfloat16) for x in (x, w))
    heads = _normal(96 * scale, 128, 64)
    attention = 2 * 96 * scale * 128 * 128 * 64
    return {
        "product": Trial(jnp.matmul, (x, w), flops),
        "product_16": Trial(jnp.matmul, short, flops),
        "batched_product": Trial(lambda q: q @ q.swapaxes(1, 2), (heads,), attention),
    }


def _gradients(examples: int, length: int) -> dict[str, Trial]:
    """The gradient of a dense layer as XLA computes it, and its clipped sum."""
    a, tokens = _normal(examples, 1, length, WIDTH), examples * length
    rows, factor = a.reshape(tokens, WIDTH), jnp.full(examples, 0.5)
    flops = 2 * tokens * WIDTH * WIDTH
    return {
        f"weight_gradient {tokens}": Trial(lambda a, g: a.T @ g, (rows, rows), flops, tokens),
        f"clipped_gemm {tokens}": Trial(ops.clipped_gemm, (a, factor, a), flops, tokens),
    }


def _norms(tokens: int, length: int) -> dict[str, Trial]:
    """Of a dense layer, from its gradients and from Gram matrices."""
    a = _normal(tokens // length, 1, length, WIDTH)
    gradient, gram = 2 * tokens * WIDTH * WIDTH, tokens * (length + 1) * 2 * WIDTH
    return {
        f"direct_norm {length}": Trial(ops.direct_norm, (a, a), gradient, length),
        f"ghost_norm {length}": Trial(ops.ghost_norm, (a, a), gram, length),
    }


def _elements(scale: int) -> dict[str, Trial]:
    elements = ELEMENTS * scale
    x = _normal(elements)
    table, ids = _normal(ROWS, 64), jnp.arange(2048) * 3 % ROWS
    key = jax.random.key_data(random.key(0))
    return {
        "memory": Trial(lambda x, y: x * 3 + y, (x, x + 1), 12 * elements),
        "transcendental": Trial(jnp.tanh, (x,), elements),
        "scatter": Trial(lambda t, i: t.at[i].add(t[i]), (table, ids), 2048 * 64),
        "noise": Trial(_noise, (x, key), DRAWS * elements),
        "operation": Trial(_chain, (_normal(8, 8),), CHAIN),
    }


def _noise(x: jax.Array, key: jax.Array) -> jax.Array:
    """In place, but for the first draw: the array of a step is no longer needed either."""
    for stream in range(DRAWS):
        x = ops.gaussian(x, key, 0.5, stream=stream)
    return x


def _chain(x: jax.Array) -> jax.Array:
    """Small products, each of which waits for the one before."""
    for _ in range(CHAIN):
        x = x @ x
    return x


def _convolutions(count: int, side: int, channels: int) -> dict[str, Trial]:
    x, kernel = _normal(count, side, side, channels), _normal(3, 3, channels, channels)
    images = x.reshape(count, 1, 1, side, side, channels)
    window = ops.Window((1, 3, 3), low=(0, 1, 1))
    flops, pixels = 2 * count * (side * channels * 3) ** 2, side * side
    factor = jnp.full(count, 0.5)

    def convolve(x: jax.Array, kernel: jax.Array) -> jax.Array:
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)

    def gradient(x: jax.Array, kernel: jax.Array) -> Any:
        return jax.vjp(lambda kernel: convolve(x, kernel), kernel)[1](x)

    programs: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "convolution": (convolve, (x, kernel)),
        "kernel_gradient": (gradient, (x, kernel)),
        "conv_sum": (lambda x, f: ops.conv_sum(x, f, x, window), (images, factor)),
        "conv_norm": (lambda x: ops.conv_norm(x, x, window), (images,)),
    }
    made = {f"{n} {pixels}": Trial(*program, flops, pixels) for n, program in programs.items()}
    if side == 14:
        gram = count * pixels * (pixels + 1) * 2 * channels
        run = lambda x: ops.conv_norm(x, x, window, "pixel_gram")  # noqa: E731
        made["pixel_gram"] = Trial(run, (images,), gram)
    return made
