"""The native library: loading it, registering its custom calls, and saying so when it is not there.

The C++ module `bk_jax._cpu` is looked for once, when first needed. What went wrong, if anything, is kept
for `bk_jax.diagnose()`, and the first operation that would have used the library warns once. Set
`BK_JAX_NATIVE=0` to do without it on purpose (no warning then).

The same calls for GPUs are used where their module is (`_cuda_module.py`) and a CUDA device is. With
`BK_JAX_CUDA=1` it is registered without a device as well, so that programs can be lowered for one; with
`BK_JAX_CUDA=0` never.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from bk_jax import _cuda_module
from bk_jax._custom_call import Form, Padded, custom_call
from bk_jax.sharding.varying import vary_together

TARGETS = (
    "bk_ghost_norm",
    "bk_clip_factor",
    "bk_clipped_gemm",
    "bk_embedding_norm",
    "bk_clipped_scatter",
    "bk_tied_cross",
    "bk_direct_norm",
    "bk_per_sample_grad",
    "bk_clipped_gemm_add",
    "bk_squared_norms",
    "bk_weighted_sum",
    "bk_conv_norm",
    "bk_conv_grad",
    "bk_conv_sum",
    "bk_gaussian",
    "bk_gaussians",
    "bk_banded_gaussian",
    "bk_chacha_bits",
    "bk_noisy_update",
    "bk_after",
)
# Many layers in one launch: on a CPU there is nothing to gain.
ON_GPUS_ALONE = (
    "bk_ghost_norms",
    "bk_clipped_gemms",
)
# XLA's own code does this on a GPU.
ON_CPUS_ALONE = (
    "bk_squared_norms",
    "bk_noisy_update",
    "bk_after",
)
REBUILD = (
    "Build it with `make setup` in a checkout, or reinstall with "
    "`pip install --force-reinstall bk_jax`."
)


class Library(NamedTuple):
    """What is known of the native library: `module` is `None` when `problem` says why."""

    module: Any | None
    targets: tuple[str, ...]
    problem: str
    switched_off: bool = False
    note: str = ""


@functools.cache
def library() -> Library:
    """Loads and registers the native library; never raises."""
    if os.environ.get("BK_JAX_NATIVE", "1") == "0":
        return Library(None, (), "switched off by BK_JAX_NATIVE=0", switched_off=True)
    try:
        module = importlib.import_module("bk_jax._cpu")
    except ImportError as error:
        return Library(None, (), f"bk_jax._cpu could not be imported ({error}). {REBUILD}")
    return _register(module)


def _register(module: Any) -> Library:
    capsules = module.registrations()
    missing = [name for name in TARGETS if name not in capsules]
    if missing:
        return Library(None, (), f"bk_jax._cpu lacks {', '.join(missing)}. {REBUILD}")
    try:
        jax.devices("cpu")  # without a backend XLA would queue the calls, and fail at its start
        for name, capsule in capsules.items():
            jax.ffi.register_ffi_target(name, capsule, platform="cpu")
    except Exception as error:  # XLA's error type differs between releases
        version = ".".join(map(str, module.ffi_api_version()))
        problem = f"XLA refused bk_jax._cpu, built for FFI {version} ({error}). {REBUILD}"
        return Library(None, (), problem)
    return Library(module, tuple(capsules), "")


@functools.cache
def cuda_library() -> Library:
    """The same for GPUs; `problem` says why it is not in use."""
    wish = os.environ.get("BK_JAX_CUDA", "auto")
    if wish == "0" or os.environ.get("BK_JAX_NATIVE", "1") == "0":
        name = "BK_JAX_CUDA" if wish == "0" else "BK_JAX_NATIVE"
        return Library(None, (), f"switched off by {name}=0", switched_off=True)
    module, package, missing = _cuda_module.find()
    if module is None:
        return Library(None, (), missing)
    problem = module.device_problem()
    if problem and wish != "1":
        return Library(None, (), f"{package}._cuda finds no device that it can use ({problem}).")
    capsules = module.registrations()
    for name, capsule in capsules.items():
        jax.ffi.register_ffi_target(name, capsule, platform="CUDA")
    return Library(module, tuple(capsules), problem, note=_cublas_note(module))


def _cublas_note(module: Any) -> str:
    """Who makes plain products: cublasLt, as JAX's own plugin finds it, or our kernels."""
    problem = module.find_cublas(cublas_folders())
    return f"our kernels make all products ({problem})" if problem else "cublasLt makes products"


def cublas_folders() -> list[str]:
    """Where NVIDIA's Python packages keep cublasLt, those of CUDA 13 and those of CUDA 12."""
    spec = importlib.util.find_spec("nvidia")
    roots = [] if spec is None else spec.submodule_search_locations or []
    names = (("cu13", "lib"), ("cublas", "lib"))
    folders = (os.path.join(root, *name) for root in roots for name in names)
    return [folder for folder in folders if os.path.isdir(folder)]


@functools.cache
def _warn_once() -> None:
    warnings.warn(
        f"bk_jax runs without its native library, with slower pure-JAX code: {library().problem}",
        RuntimeWarning,
        stacklevel=2,
    )


def available(target: str) -> bool:
    """Whether a custom call can be used on the CPU; warns once when the library is missing."""
    found = library()
    if found.module is None and not found.switched_off:
        _warn_once()
    return target in found.targets


def registered(target: str) -> tuple[str, ...]:
    """The platforms where a custom call can be used."""
    usable = {"cpu": available(target), "cuda": target in cuda_library().targets}
    return tuple(platform for platform, is_usable in usable.items() if is_usable)


def call(
    target: str,
    twin: Callable[..., Any],
    results: Sequence[jax.ShapeDtypeStruct],
    *operands: jax.Array,
    aliases: Mapping[int, int] | None = None,
    shapes: Mapping[int, tuple[int, ...]] | None = None,
    padded: Padded | None = None,
    **attributes: Any,
) -> tuple[jax.Array, ...]:
    """Runs a custom call where it is registered and its pure-JAX twin everywhere else.

    The choice is made when XLA lowers the program for a platform, so one traced program serves all.
    `aliases` names operands whose buffer a result takes over; XLA copies one that is still needed.
    `shapes` are the shapes in which the custom call takes operands, if not in their own: those in which
    XLA's dots and convolutions read them, because XLA may compute an array again for another shape.
    `padded` is what the call is on a GPU, if it is another one there.
    """
    operands = tuple(vary_together(operands))
    platforms = registered(target)
    if not platforms:
        return tuple(twin(*operands, **attributes))
    taken = shapes or {}
    given = [x.reshape(taken[i]) if i in taken else x for i, x in enumerate(operands)]
    form = Form(
        target,
        tuple(results),
        aliases=tuple((aliases or {}).items()),
        shapes=tuple((i, operands[i].shape) for i in taken),
        platforms=tuple((name, 0) for name in platforms),
        twin=twin,
        attributes=tuple(attributes.items()),
    )
    if "cuda" in platforms:
        sized = dict(form.platforms) | {"cuda": _workspace_bytes(form, given, padded)}
        form = form._replace(platforms=tuple(sized.items()), padded=padded)
    return custom_call(form, given)


def _workspace_bytes(form: Form, operands: Sequence[jax.Array], padded: Padded | None) -> int:
    """Bytes that the call has on a GPU as an additional result; 0: it has none."""
    module = cuda_library().module
    assert module is not None
    taken: Sequence[Any] = jax.eval_shape(padded.of, operands) if padded else operands
    results = padded.results if padded else form.results
    given, made = ([(x.dtype.name, x.shape) for x in arrays] for arrays in (taken, results))
    return int(module.workspace_bytes(form.target, given, made, dict(form.attributes)))
