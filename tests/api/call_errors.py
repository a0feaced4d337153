"""Errors of a call: keys, parameters, what the loss returns, the batch, and routes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from api.mistakes import W, X, call, call_with, dense, joined, regularised, symbolic

# (exception, its text, what raises it)
KEY_AND_PARAMETER_ERRORS = {
    "no key": (
        ValueError,
        "noise needs a key: call grad_fn(params, batch, key=key) with a fresh key each step, for "
        "example key, step_key = jax.random.split(key). For a clipped sum without noise, which is "
        "not private, pass noise_multiplier=0.0.",
        call(W, X, noise_multiplier=1.0),
    ),
    "a key without noise": (
        ValueError,
        "a key was passed but noise_multiplier is 0.0, so no noise would be drawn from it. Drop the "
        "key, or set the noise_multiplier that your privacy plan asks for.",
        call(W, X, key=np.zeros(2, np.uint32)),
    ),
    "a string among the parameters": (
        TypeError,
        "parameter 'activation' is a str, not an array. Keep what is not an array out of the "
        "differentiated argument, for example with functools.partial.",
        call({"w": W, "activation": "relu"}, X),
    ),
    "complex parameter": (
        TypeError,
        "parameter 'layer/w' is complex64: complex parameters are not supported. Store the real and "
        "the imaginary part as two real parameters.",
        call({"layer": {"w": W.astype(np.complex64)}}, X),
    ),
    "prefix that does not match": (
        ValueError,
        "l2_clip_norm must be a scalar or a tree whose structure is a prefix of the parameters' (one "
        "number for each subtree); got PyTreeDef({'a': *, 'c': *}) for parameters "
        "PyTreeDef({'a': *, 'b': *}).",
        call({"a": W, "b": W}, X, loss=joined, l2_clip_norm={"a": 1.0, "c": 1.0}),
    ),
    "prefix below a leaf": (
        ValueError,
        "l2_clip_norm must be a scalar or a tree whose structure is a prefix of the parameters' (one "
        "number for each subtree); got PyTreeDef({'w': [*, *]}) for parameters PyTreeDef({'w': *}).",
        call({"w": W}, X, loss=lambda p, x: dense(p["w"], x), l2_clip_norm={"w": [1.0, 1.0]}),
    ),
    "prefix that misses a leaf": (
        ValueError,
        "l2_clip_norm must be a scalar or a tree whose structure is a prefix of the parameters' (one "
        "number for each subtree); got PyTreeDef({'a': *}) for parameters "
        "PyTreeDef({'a': *, 'b': *}).",
        call({"a": W, "b": W}, X, loss=joined, l2_clip_norm={"a": 1.0}),
    ),
    "symbolic size": (
        ValueError,
        "batch array 'batch' has the shape (b, 3), but routes and custom calls are chosen by sizes, "
        "which must be numbers. Export one program for each size; batches of different lengths fit in "
        "one, padded to one length and marked by is_padding_example.",
        lambda: jax.eval_shape(call_with(W), symbolic("b, 3")),
    ),
}  # fmt: skip

LOSS_ERRORS = {
    "loss is a vector": (
        TypeError,
        "loss_fn must return a scalar, got float32 of shape (1, 2). loss_fn sees a batch of one "
        "example; reduce its result to a scalar, for example with jnp.mean or jnp.sum.",
        call(W, X, loss=lambda w, x: x @ w),
    ),
    "loss is a vector, bare example": (
        TypeError,
        "loss_fn must return a scalar, got float32 of shape (2,). loss_fn sees one example without a "
        "batch axis; reduce its result to a scalar.",
        call(W, X, loss=lambda w, x: x @ w, keep_batch_dim=False),
    ),
    "loss per example of the batch": (
        TypeError,
        "loss_fn must return a scalar, got float32 of shape (1,). loss_fn sees a batch of one "
        "example; reduce its result to a scalar, for example with jnp.mean or jnp.sum.",
        call(W, X, loss=lambda w, x: jnp.sum(x @ w, axis=-1)),
    ),
    "loss is an integer": (
        TypeError,
        "loss_fn must return a real floating-point loss, got int32.",
        call(W, X, loss=lambda w, x: jnp.int32(3)),
    ),
    "loss is complex": (
        TypeError,
        "loss_fn must return a real floating-point loss, got complex64.",
        call(W, X, loss=lambda w, x: dense(w, x) * 1j),
    ),
    "loss is a pair without has_aux": (
        TypeError,
        "loss_fn must return one number; it returned PyTreeDef((*, *)). To return more than the "
        "loss, return (loss, extra) and pass has_aux=True.",
        call(W, X, loss=lambda w, x: (dense(w, x), 1.0)),
    ),
    "loss is a dictionary": (
        TypeError,
        "loss_fn must return one number; it returned PyTreeDef({'loss': *}). To return more than the "
        "loss, return (loss, extra) and pass has_aux=True.",
        call(W, X, loss=lambda w, x: {"loss": dense(w, x)}),
    ),
    "loss is nothing": (
        TypeError,
        "loss_fn must return one number; it returned PyTreeDef(None). To return more than the "
        "loss, return (loss, extra) and pass has_aux=True.",
        call(W, X, loss=lambda w, x: None),
    ),
    "has_aux without aux": (
        TypeError,
        "has_aux=True expects loss_fn to return (loss, aux), got",
        call(W, X, has_aux=True),
    ),
    "has_aux with three": (
        TypeError,
        "has_aux=True expects loss_fn to return (loss, aux), got tuple.",
        call(W, X, has_aux=True, loss=lambda w, x: (dense(w, x), 1, 2)),
    ),
}  # fmt: skip

BATCH_ERRORS = {
    "batch without arrays": (
        ValueError,
        "the batch has no arrays; batch_argnums names an argument without leaves.",
        call(W, {}),
    ),
    "scalar in the batch": (
        ValueError,
        "batch array 'temperature' is a scalar; each array of the batch needs a leading axis with "
        "one entry per example. Pass what all examples share as another argument.",
        call(W, {"temperature": 1.0, "x": X}),
    ),
    "scalar batch": (
        ValueError,
        "batch array 'batch' is a scalar; each array of the batch needs a leading axis with one "
        "entry per example. Pass what all examples share as another argument.",
        call(W, 1.0),
    ),
    "lengths that disagree": (
        ValueError,
        "batch arrays disagree on the number of examples: x: 4, y: 3.",
        call(W, {"x": X, "y": X[:3]}),
    ),
    "lengths that disagree between arguments": (
        ValueError,
        "batch arrays disagree on the number of examples: 0: 4, 1: 2.",
        call(W, X, X[:2], batch_argnums=(1, 2)),
    ),
    "padding of the wrong length": (
        ValueError,
        "is_padding_example must be a bool array of shape (4,), got bool of shape (3,).",
        call(W, X, is_padding_example=np.zeros(3, bool)),
    ),
    "padding of the wrong dtype": (
        ValueError,
        "is_padding_example must be a bool array of shape (4,), got float32 of shape (4,).",
        call(W, X, is_padding_example=np.zeros(4, np.float32)),
    ),
}  # fmt: skip

ROUTE_ERRORS = {
    "unknown route": (
        ValueError,
        "route 'magic' of pattern '*' is not one of ghost, fused, store, sparse, leaf.",
        call({"w": W}, X, loss=lambda p, x: dense(p["w"], x), routes={"*": "magic"}),
    ),
    "pattern that matches nothing": (
        ValueError,
        "route pattern '*/kernel' matches no parameter; paths are w.",
        call({"w": W}, X, loss=lambda p, x: dense(p["w"], x), routes={"*/kernel": "ghost"}),
    ),
    "route that the uses do not allow": (
        ValueError,
        "cannot take the route 'ghost': it is used by",
        call({"w": W}, X, loss=lambda p, x: regularised(p["w"], x), routes={"w": "ghost"}),
    ),
    "route of another kind": (
        ValueError,
        "parameter 'w' is used as dense, which has no route 'sparse'; it can take ghost, fused, "
        "store or leaf.",
        call({"w": W}, X, loss=lambda p, x: dense(p["w"], x), routes={"w": "sparse"}),
    ),
    "one weight, two routes": (
        ValueError,
        "parameters 'a', 'b' are one weight but are asked to take ['ghost', 'store'].",
        call({"a": W, "b": W}, X, loss=joined, routes={"a": "ghost", "b": "store"}),
    ),
}  # fmt: skip

CALL_ERRORS = {**KEY_AND_PARAMETER_ERRORS, **LOSS_ERRORS, **BATCH_ERRORS, **ROUTE_ERRORS}
