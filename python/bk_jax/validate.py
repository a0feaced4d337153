"""Checks of what a user hands over: each says what was expected, what came, and what to do."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax.ops.clip_factor import CLIPPING_NAMES
from bk_jax.paths import leaf_names

# Keyword arguments of a private gradient, and what they are.
OWN_OPTIONS = {"key": "the key of the noise", "is_padding_example": "rows that do not count"}
# Half a unit in the last place of float32, relative to 1.
LEAST_NOISE = 2.0**-24


def concrete(value: Any, name: str) -> float | None:
    """The option `name` as a float, or `None` for a traced one."""
    if isinstance(value, jax.core.Tracer):
        return None
    try:
        return float(operator.mul(value, 1.0))  # a string or None does not multiply
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a number, got {value!r}.") from error


def clip_norms(values: Sequence[Any], clipping: Any) -> None:
    """There must be a clip norm, and each must be fit for the clipping function."""
    if not values:
        raise ValueError("l2_clip_norm holds no number; give one, or one for each group.")
    for value in values:
        clip_norm(value, clipping)


def clip_norm(value: Any, clipping: Any) -> None:
    """`l2_clip_norm` must be a non-negative scalar; rescaling functions need a finite one."""
    if np.ndim(value) != 0:
        raise ValueError(
            f"l2_clip_norm must be a scalar, or a tree of scalars with one per group of parameters; "
            f"got an array of shape {np.shape(value)}."
        )
    number = concrete(value, "l2_clip_norm")
    if number is None:
        return
    if math.isnan(number) or number < 0:
        raise ValueError(f"l2_clip_norm must be at least 0, got {number}.")
    if math.isinf(number) and clipping in ("automatic", "normalize"):
        raise ValueError(
            f"clipping={clipping!r} rescales every gradient towards l2_clip_norm and so needs a finite "
            'one; got inf. Use clipping="abadi" to leave gradients as they are.'
        )


def pre_clip_scale(values: Sequence[Any]) -> None:
    """Scales are numbers or arrays of them, finite and above 0."""
    for value in values:
        if isinstance(value, jax.core.Tracer):
            continue
        try:
            numbers = np.asarray(value, np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"pre_clip_scale must hold numbers, got {value!r}.") from error
        if not (np.isfinite(numbers).all() and (numbers > 0).all()):
            raise ValueError(f"pre_clip_scale must be finite and above 0, got {value!r}.")


def loss_scale(value: Any) -> None:
    """A power of two: then nothing is rounded when it is undone."""
    if value is None:
        return
    if np.ndim(value) != 0:
        raise ValueError(f"loss_scale must be one number, got an array of {np.shape(value)}.")
    number = concrete(value, "loss_scale")
    if number is None:
        return
    if not (math.isfinite(number) and number > 0 and math.frexp(number)[0] == 0.5):
        raise ValueError(f"loss_scale must be a power of two, such as 1024.0; got {number}.")


def noise(noise_multiplier: Any, clip_norms: Sequence[Any]) -> None:
    """`noise_multiplier` must be non-negative, and noise needs a finite sensitivity."""
    number = concrete(noise_multiplier, "noise_multiplier")
    if number is None:
        return
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"noise_multiplier must be finite and at least 0, got {number}.")
    norms = [concrete(norm, "l2_clip_norm") for norm in clip_norms]
    _audible(number, norms)
    unbounded = any(norm == math.inf for norm in norms)
    if number > 0 and unbounded:
        raise ValueError(
            "l2_clip_norm=inf bounds nothing, so no amount of noise makes the result private. "
            "Choose a finite l2_clip_norm, or noise_multiplier=0.0 for a sum that is not private."
        )


def _audible(noise_multiplier: float, clip_norms: Sequence[float | None]) -> None:
    """Noise that rounds away, or whose size is not a number of float32, is no noise."""
    if 0 < noise_multiplier < LEAST_NOISE:
        raise ValueError(
            f"noise_multiplier={noise_multiplier} is too small to add anything: below "
            f"{LEAST_NOISE:.0e} the noise rounds away beside gradients of size l2_clip_norm. Take the "
            "one that your privacy plan asks for, or 0.0 for a sum that is not private."
        )
    known = [norm for norm in clip_norms if norm is not None]
    sensitivity = math.hypot(*known)
    tiny = float(np.finfo(np.float32).tiny)
    if len(known) == len(clip_norms) and 0 < sensitivity * noise_multiplier < tiny:
        raise ValueError(
            f"l2_clip_norm={sensitivity} times noise_multiplier={noise_multiplier} is below {tiny:.1e}, "
            "the smallest number of float32: no noise would be added. Choose a larger l2_clip_norm."
        )


def clipping(value: Any) -> None:
    """`clipping` must be one of the names or a function of the norms."""
    if not callable(value) and value not in CLIPPING_NAMES:
        names = ", ".join(repr(name) for name in CLIPPING_NAMES)
        raise ValueError(
            f"clipping must be one of {names}, or a function from norms to factors; got {value!r}."
        )


def normalize_by(value: Any) -> None:
    """`normalize_by` must be a positive constant."""
    number = concrete(value, "normalize_by")
    if number is not None and not (math.isfinite(number) and number > 0):
        raise ValueError(
            f"normalize_by must be a positive constant such as the expected batch size, got {number}."
        )


def gradient_dtype(value: Any) -> None:
    """`dtype` must be able to hold noise: a whole number cannot."""
    if value is not None and not jnp.issubdtype(jnp.dtype(value), jnp.floating):
        raise TypeError(
            f"dtype is that of the returned gradient and must be a floating-point type, got {value!r}: "
            "the noise would be cut off."
        )


def microbatch_size(value: Any) -> None:
    """`microbatch_size` must be a positive whole number, or "auto"."""
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if value is not None and value != "auto" and not whole:
        raise ValueError(
            'microbatch_size must be a whole number of at least 1, "auto" (the largest that '
            f"memory_limit allows) or None, got {value!r}."
        )


def memory_limit(value: Any, microbatch_size: Any) -> None:
    """`memory_limit` is a number of bytes or a share, and decides how many examples are taken."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(
            "memory_limit must be a positive number: a whole number of bytes, or a float, which is a "
            f"share of the plain step's temporary memory (0.7); got {value!r}."
        )
    if isinstance(microbatch_size, int):
        raise ValueError(
            f"memory_limit={value!r} chooses microbatch_size, and microbatch_size={microbatch_size} "
            'is given. Leave one of them out, or pass microbatch_size="auto".'
        )


def key_given(key: Any, noise_multiplier: Any) -> None:
    """Noise needs a key, and a key without noise is a mistake worth stopping for."""
    noiseless = concrete(noise_multiplier, "noise_multiplier") == 0.0
    if key is None and not noiseless:
        raise ValueError(
            "noise needs a key: call grad_fn(params, batch, key=key) with a fresh key each step, for "
            "example key, step_key = jax.random.split(key). For a clipped sum without noise, which is "
            "not private, pass noise_multiplier=0.0."
        )
    if key is not None and noiseless:
        raise ValueError(
            "a key was passed but noise_multiplier is 0.0, so no noise would be drawn from it. Drop the "
            "key, or set the noise_multiplier that your privacy plan asks for."
        )


def parameter_leaf(name: str, array: Any) -> None:
    """A parameter must be an array of real numbers."""
    try:
        aval = jax.typeof(array)
    except TypeError as error:
        raise TypeError(
            f"parameter {name!r} is a {type(array).__name__}, not an array. Keep what is not an array "
            "out of the differentiated argument, for example with functools.partial."
        ) from error
    known_sizes(f"parameter {name!r}", aval.shape)
    if jnp.issubdtype(aval.dtype, jnp.complexfloating):
        raise TypeError(
            f"parameter {name!r} is {aval.dtype}: complex parameters are not supported. Store the real "
            "and the imaginary part as two real parameters."
        )


def known_sizes(what: str, shape: Sequence[Any]) -> None:
    """Sizes must be numbers, not symbols of `jax.export`."""
    if not all(isinstance(size, int) for size in shape):
        raise ValueError(
            f"{what} has the shape ({', '.join(map(str, shape))}), but routes and custom calls are "
            "chosen by sizes, which must be numbers. Export one program for each size; batches of "
            "different lengths fit in one, padded to one length and marked by is_padding_example."
        )


def loss_shape(loss: Any, keep_batch_dim: bool) -> None:
    """The loss of one example must be one real number."""
    leaves = jax.tree_util.tree_leaves(loss)
    if (
        len(leaves) != 1
        or jax.tree_util.treedef_is_leaf(jax.tree_util.tree_structure(loss)) is False
    ):
        raise TypeError(
            f"loss_fn must return one number; it returned {jax.tree_util.tree_structure(loss)}. "
            "To return more than the loss, return (loss, extra) and pass has_aux=True."
        )
    aval = leaves[0]
    if aval.shape != ():
        hint = (
            "loss_fn sees a batch of one example; reduce its result to a scalar, for example with "
            "jnp.mean or jnp.sum."
            if keep_batch_dim
            else "loss_fn sees one example without a batch axis; reduce its result to a scalar."
        )
        raise TypeError(
            f"loss_fn must return a scalar, got {aval.dtype} of shape {aval.shape}. {hint}"
        )
    if not jnp.issubdtype(aval.dtype, jnp.floating):
        raise TypeError(f"loss_fn must return a real floating-point loss, got {aval.dtype}.")


def split_aux(out: Any) -> tuple[Any, Any]:
    """With `has_aux` the loss function returns a pair."""
    if not isinstance(out, tuple) or len(out) != 2:
        raise TypeError(
            f"has_aux=True expects loss_fn to return (loss, aux), got {type(out).__name__}."
        )
    return out


def batch_size(batch: Any) -> int:
    """All arrays of the batch must share their leading axis, which is the number of examples."""
    arrays = jax.tree_util.tree_leaves(batch)
    if not arrays:
        raise ValueError("the batch has no arrays; batch_argnums names an argument without leaves.")
    sizes = {}
    for path, array in zip(leaf_names(batch), arrays, strict=True):
        name, shape = path or "batch", np.shape(array)
        if not shape:
            raise ValueError(
                f"batch array {name!r} is a scalar; each array of the batch needs a leading axis with "
                "one entry per example. Pass what all examples share as another argument."
            )
        known_sizes(f"batch array {name!r}", shape)
        sizes[name] = shape[0]
    if len(set(sizes.values())) != 1:
        listing = ", ".join(f"{name}: {size}" for name, size in sizes.items())
        raise ValueError(f"batch arrays disagree on the number of examples: {listing}.")
    return next(iter(sizes.values()))


def padding_mask(mask: Any, size: int) -> None:
    """`is_padding_example` must be a boolean per example."""
    shape, dtype = np.shape(mask), jnp.asarray(mask).dtype
    if shape != (size,) or dtype != jnp.bool_:
        raise ValueError(
            f"is_padding_example must be a bool array of shape ({size},), got {dtype} of shape {shape}."
        )


def argument_numbers(
    argnums: Sequence[int], batch_argnums: Sequence[int], prng_argnum: int | None
) -> None:
    """Each argument has one role."""
    numbers = [*argnums, *batch_argnums, *([] if prng_argnum is None else [prng_argnum])]
    if any(n < 0 for n in numbers):
        raise ValueError(f"argument numbers must be at least 0, got {numbers}.")
    if len(set(numbers)) != len(numbers):
        raise ValueError(
            f"an argument cannot have two roles: argnums={tuple(argnums)}, "
            f"batch_argnums={tuple(batch_argnums)}, prng_argnum={prng_argnum}."
        )


def loss_parameters(loss_fn: Any, roles: Sequence[int]) -> None:
    """A parameter of the loss with the name of one of the gradient's own options would never be set."""
    try:
        parameters = inspect.signature(loss_fn).parameters
    except (TypeError, ValueError):
        return
    for position, (name, parameter) in enumerate(parameters.items()):
        given = (
            parameter.kind is not parameter.KEYWORD_ONLY and parameter.default is parameter.empty
        )
        if name in OWN_OPTIONS and position not in roles and not given:
            raise ValueError(
                f"loss_fn has a parameter {name!r}, which is an option of the private gradient itself "
                f"(grad_fn({name}=...) means {OWN_OPTIONS[name]}) and would never reach the loss. "
                f"Rename it, or pass it by position: {_way_out(name)}."
            )


def _way_out(name: str) -> str:
    if name == "key":
        return "loss_fn(params, batch, key) with prng_argnum=2 gives each example its own key"
    return "an argument of the batch, named in batch_argnums"


def argument_count(num_args: int, numbers: Sequence[int]) -> None:
    """The call must supply every argument that has a role."""
    if numbers and max(numbers) >= num_args:
        raise TypeError(
            f"argument number {max(numbers)} has a role in argnums, batch_argnums or prng_argnum, but "
            f"the call has only {num_args} positional arguments; pass it by position."
        )
