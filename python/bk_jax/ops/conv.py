"""Gradients of convolution kernels: norms per example, the gradients themselves, their clipped sum.

Arrays are canonical: images `x[B, images, D, H, W, C]`, output gradients `g[B, images, D', H', W', O]`,
with missing spatial dimensions of size 1 in front; the kernel is `[kD, kH, kW, C / groups, O]`. The
`images` of one example share the kernel and add up.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp

from bk_jax import _native
from bk_jax.ops import border
from bk_jax.ops.ghost_norm import ghost_norm_twin
from bk_jax.ops.numerics import SquaredNorms, accumulation_dtype, common_dtype, unit_roundoff
from bk_jax.ops.patches import Window, conv_patches, conv_rows
from bk_jax.ops.sums import sum_of_squares

Form = Literal["direct", "pixel_gram"]


def conv_norm(x: jax.Array, g: jax.Array, window: Window, form: Form = "direct") -> SquaredNorms:
    """Squared norms `[B]` of the kernel's gradients, which are not kept.

    The form `"direct"` makes the gradients in blocks that are dropped, `2 T d p` flop per example with
    T pixels of the result and d = kernel pixels x input channels; `"pixel_gram"` makes no gradient
    but inner products of pixels, `T^2 (cin + p)` flop if the stride is 1.

    >>> import jax.numpy as jnp
    >>> x, g = jnp.full((1, 1, 1, 1, 2, 1), 2.0), jnp.full((1, 1, 1, 1, 1, 1), 3.0)
    >>> print(conv_norm(x, g, Window((1, 1, 2))).estimate)  # the gradient is [6, 6]
    [72.]
    """
    x, g = _checked("conv_norm", x, g, window)
    out = jax.ShapeDtypeStruct(x.shape[:1], accumulation_dtype(x.dtype))
    attributes = {**window.attributes(), "form": form}
    shapes = border.images({0: x, 1: g}, _spatial(x, g, window))
    norms = _native.call(
        "bk_conv_norm", conv_norm_twin, [out, out], x, g, shapes=shapes, **attributes
    )
    return SquaredNorms(*norms)


def conv_grad(x: jax.Array, g: jax.Array, window: Window) -> tuple[jax.Array, SquaredNorms]:
    """The kernel's gradient of every example, `[B, kD, kH, kW, C / groups, O]`, and its squared norm.

    The bound is one of the norm of the returned arrays.
    """
    x, g = _checked("conv_grad", x, g, window)
    dtype = accumulation_dtype(x.dtype)
    grad = jax.ShapeDtypeStruct((x.shape[0], *_kernel_shape(x, g, window)), dtype)
    out = jax.ShapeDtypeStruct(x.shape[:1], dtype)
    grads, *norms = _native.call(
        "bk_conv_grad", conv_grad_twin, [grad, out, out], x, g,
        shapes=border.images({0: x, 1: g}, _spatial(x, g, window)), **window.attributes(),
    )  # fmt: skip
    return grads, SquaredNorms(*norms)


def conv_sum(x: jax.Array, factor: jax.Array, g: jax.Array, window: Window) -> jax.Array:
    """The sum over examples of `factor[i]` times the kernel's gradient, `[kD, kH, kW, C / groups, O]`.

    An example with the factor 0 is not read: a NaN inside it does no harm.
    """
    x, g = _checked("conv_sum", x, g, window)
    if factor.shape != x.shape[:1]:
        raise ValueError(f"conv_sum expects factor [{x.shape[0]}], got {factor.shape}.")
    dtype = accumulation_dtype(x.dtype)
    spatial, shape = _spatial(x, g, window), _kernel_shape(x, g, window)
    # As XLA has the kernel: noise takes the sum over in place, and a reshape between would be a copy.
    out = jax.ShapeDtypeStruct(shape[3 - spatial :], dtype)
    (total,) = _native.call(
        "bk_conv_sum", conv_sum_twin, [out], x, factor.astype(dtype), g,
        shapes=border.images({0: x, 2: g}, spatial), **window.attributes(),
    )  # fmt: skip
    return total.reshape(shape)


def conv_norm_twin(x: jax.Array, g: jax.Array, form: Form, **window: Any) -> SquaredNorms:
    """The same in plain JAX: XLA's gradients, formed and dropped, or Gram matrices of patches.

    An entry of a gradient sums over pixels in any order, so the gradient at one kernel offset errs by
    at most `T u |x| |g|` in norm (Cauchy-Schwarz over pixels).
    """
    if form == "pixel_gram":
        shape = _window(window)
        patches = conv_patches(x, g.shape[2:5], shape)
        return ghost_norm_twin(patches, conv_rows(g, shape.groups))
    dtype = accumulation_dtype(x.dtype)
    norms = sum_of_squares(_per_sample(x, g, window))
    lengths = [jnp.sqrt(sum_of_squares(a.astype(dtype)).upper) for a in (x, g)]
    offsets = math.prod(int(k) for k in window["kernel"])
    chain = 2 * (math.prod(g.shape[1:5]) + 4) * math.sqrt(offsets)
    slack = chain * unit_roundoff(dtype) * lengths[0] * lengths[1]
    return SquaredNorms(norms.estimate, jnp.square(jnp.sqrt(norms.upper) + slack))


def conv_grad_twin(
    x: jax.Array, g: jax.Array, **window: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The same in plain JAX."""
    grads = _per_sample(x, g, window)
    return (grads, *sum_of_squares(grads))


def conv_sum_twin(x: jax.Array, factor: jax.Array, g: jax.Array, **window: Any) -> tuple[jax.Array]:
    """The same in plain JAX: examples with the factor 0 are replaced by zeros first.

    As of the custom call, the result has no axes for dimensions that the convolution does not have.
    """
    scale = factor.reshape(-1, *[1] * 5)
    x = jnp.where(scale != 0, x.astype(factor.dtype), 0)
    g = jnp.where(scale != 0, g.astype(factor.dtype) * scale, 0)
    total = _per_sample(_merge(x), _merge(g), window)[0]
    return (total.reshape(total.shape[3 - _spatial(x, g, _window(window)) :]),)


def _merge(array: jax.Array) -> jax.Array:
    """All examples as the images of one."""
    return array.reshape(1, array.shape[0] * array.shape[1], *array.shape[2:])


def _per_sample(x: jax.Array, g: jax.Array, window: dict[str, Any]) -> jax.Array:
    dtype = accumulation_dtype(x.dtype)
    if x.shape[0] == 0:
        return jnp.zeros((0, *_kernel_shape(x, g, _window(window))), dtype)
    return jax.vmap(functools.partial(_transpose, window=_window(window)))(
        x.astype(dtype), g.astype(dtype)
    )


def _window(attributes: dict[str, Any]) -> Window:
    return Window(**{**attributes, "groups": int(attributes["groups"])})


def _transpose(x: jax.Array, g: jax.Array, *, window: Window) -> jax.Array:
    """XLA's gradient of the kernel for the images of one example."""
    padding = window.padding(x.shape[1:4], g.shape[1:4])
    kernel = jax.ShapeDtypeStruct(_kernel_shape(x[None], g[None], window), g.dtype)

    def apply(kernel: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            x,
            kernel,
            window.stride,
            padding,
            window.input_dilation,
            window.dilation,
            ("NDHWC", "DHWIO", "NDHWC"),
            window.groups,
        )

    (out,) = jax.linear_transpose(apply, kernel)(g)
    return out


def _spatial(x: jax.Array, g: jax.Array, window: Window) -> int:
    """How many dimensions the images have: those in front of size 1 do not count."""
    sizes = zip(x.shape[2:5], g.shape[2:5], window.kernel, strict=True)
    missing = [all(int(n) == 1 for n in size) for size in sizes]
    return 3 if not missing[0] else 2 if not missing[1] else 1


def _kernel_shape(x: jax.Array, g: jax.Array, window: Window) -> tuple[int, ...]:
    return (*window.kernel, x.shape[5] // window.groups, g.shape[5])


def _checked(
    operation: str, x: jax.Array, g: jax.Array, window: Window
) -> tuple[jax.Array, jax.Array]:
    """Both in one dtype."""
    if x.ndim != 6 or g.ndim != 6 or x.shape[:2] != g.shape[:2]:
        raise ValueError(
            f"{operation} expects images [B, images, D, H, W, C] and output gradients "
            f"[B, images, D', H', W', O] with equal B and images; got {x.shape} and {g.shape}."
        )
    if x.shape[5] % window.groups or g.shape[5] % window.groups:
        raise ValueError(
            f"{operation} expects channels that {window.groups} groups divide; got {x.shape[5]} and "
            f"{g.shape[5]}."
        )
    dtype = common_dtype(x.dtype, g.dtype)
    return x.astype(dtype), g.astype(dtype)
