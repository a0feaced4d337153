"""Errors of the options: what the transform itself refuses, before there is a batch."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import bk_jax
from api.mistakes import W, X, call, dense, make, traced_clip_norm

# (exception, its text, what raises it)
OPTION_ERRORS = {
    "option that is no number": (
        TypeError,
        "noise_multiplier must be a number, got None.",
        make(noise_multiplier=None),
    ),
    "no clip norm at all": (ValueError, "l2_clip_norm holds no number", make(l2_clip_norm={})),
    "negative R": (ValueError, "l2_clip_norm must be at least 0, got -1.0.", make(l2_clip_norm=-1)),
    "NaN R": (ValueError, "l2_clip_norm must be at least 0, got nan.", make(l2_clip_norm=np.nan)),
    "negative R in a tree": (
        ValueError,
        "l2_clip_norm must be at least 0, got -2.0.",
        make(l2_clip_norm={"a": 1.0, "b": -2.0}),
    ),
    "array R": (
        ValueError,
        "l2_clip_norm must be a scalar, or a tree of scalars with one per group of parameters; "
        "got an array of shape (2,).",
        make(l2_clip_norm=np.ones(2)),
    ),
    "traced array R": (
        ValueError,
        "l2_clip_norm must be a scalar, or a tree of scalars with one per group of parameters; "
        "got an array of shape (2,).",
        traced_clip_norm(np.ones(2, np.float32)),
    ),
    "automatic with R = inf": (
        ValueError,
        "clipping='automatic' rescales every gradient towards l2_clip_norm and so needs a finite "
        'one; got inf. Use clipping="abadi" to leave gradients as they are.',
        make(l2_clip_norm=np.inf, clipping="automatic", noise_multiplier=0.0),
    ),
    "normalize with R = inf": (
        ValueError,
        "clipping='normalize' rescales every gradient towards l2_clip_norm and so needs a finite "
        'one; got inf. Use clipping="abadi" to leave gradients as they are.',
        make(l2_clip_norm=np.inf, clipping="normalize", noise_multiplier=0.0),
    ),
    "negative noise": (
        ValueError,
        "noise_multiplier must be finite and at least 0, got -0.5.",
        make(noise_multiplier=-0.5),
    ),
    "infinite noise": (
        ValueError,
        "noise_multiplier must be finite and at least 0, got inf.",
        make(noise_multiplier=np.inf),
    ),
    "noise without a bound": (
        ValueError,
        "l2_clip_norm=inf bounds nothing, so no amount of noise makes the result private. Choose a "
        "finite l2_clip_norm, or noise_multiplier=0.0 for a sum that is not private.",
        make(l2_clip_norm={"a": 1.0, "b": np.inf}),
    ),
    "unknown clipping": (
        ValueError,
        "clipping must be one of 'abadi', 'automatic', 'normalize', 'indicator', or a function from "
        "norms to factors; got 'flat'.",
        make(clipping="flat"),
    ),
    "zero normalize_by": (
        ValueError,
        "normalize_by must be a positive constant such as the expected batch size, got 0.0.",
        make(normalize_by=0),
    ),
    "infinite normalize_by": (
        ValueError,
        "normalize_by must be a positive constant such as the expected batch size, got inf.",
        make(normalize_by=np.inf),
    ),
    "no limit of memory": (
        ValueError,
        "memory_limit must be a positive number: a whole number of bytes, or a float",
        make(memory_limit=0),
    ),
    "a limit of memory and a microbatch": (
        ValueError,
        "memory_limit=0.5 chooses microbatch_size, and microbatch_size=2 is given.",
        make(memory_limit=0.5, microbatch_size=2),
    ),
    "a device that is not known": (
        ValueError,
        'device must be "cpu", a GPU ("A100-SXM4-80GB", "A100", "H100", "B200", alone or within a '
        "longer name), or None for the one that the program is compiled for, got 'abacus'.",
        make(device="abacus"),
    ),
    "microbatch of zero": (
        ValueError,
        'microbatch_size must be a whole number of at least 1, "auto" (the largest that memory_limit '
        "allows) or None, got 0.",
        make(microbatch_size=0),
    ),
    "microbatch of half": (
        ValueError,
        'microbatch_size must be a whole number of at least 1, "auto" (the largest that memory_limit '
        "allows) or None, got 0.5.",
        make(microbatch_size=0.5),
    ),
    "unknown method": (
        ValueError,
        "method must be one of auto, bk, bk_mix_ghost_clip, bk_mix_opt, ghost_clip, mix_ghost_clip, "
        "fast_grad_clip, opacus, tf_privacy; got 'magic'.",
        make(method="magic"),
    ),
    "noise for clipped_value_and_grad": (
        TypeError,
        "clipped_value_and_grad adds no noise; use dp_value_and_grad for noise_multiplier.",
        lambda: bk_jax.clipped_value_and_grad(dense, noise_multiplier=1.0),
    ),
    "unknown relation": (
        ValueError,
        "neighboring_relation must be one of 'add_or_remove_one', 'replace_one', 'replace_special' in "
        "any case, or a dp_accounting.NeighboringRelation; got 'replace'.",
        lambda: make()().sensitivity("replace"),
    ),
    "a parameter that is never set": (
        ValueError,
        "loss_fn has a parameter 'key', which is an option of the private gradient itself",
        lambda: bk_jax.dp_value_and_grad(lambda w, x, key=None: dense(w, x)),
    ),
    "noise that rounds away": (
        ValueError,
        "noise_multiplier=1e-300 is too small to add anything: below 6e-08 the noise rounds away",
        make(noise_multiplier=1e-300),
    ),
    "noise that underflows": (
        ValueError,
        "l2_clip_norm=1e-39 times noise_multiplier=1.0 is below 1.2e-38",
        make(l2_clip_norm=1e-39),
    ),
    "a gradient of whole numbers": (
        TypeError,
        "dtype is that of the returned gradient and must be a floating-point type",
        make(dtype=jnp.int32),
    ),
    "negative argument number": (
        ValueError,
        "argument numbers must be at least 0, got [-1, 1].",
        make(argnums=-1),
    ),
    "two roles": (
        ValueError,
        "an argument cannot have two roles: argnums=(0, 1), batch_argnums=(1,), prng_argnum=None.",
        make(argnums=(0, 1)),
    ),
    "key is also batch": (
        ValueError,
        "an argument cannot have two roles: argnums=(0,), batch_argnums=(1, 2), prng_argnum=2.",
        make(batch_argnums=(1, 2), prng_argnum=2),
    ),
    "scale 0": (
        ValueError,
        "pre_clip_scale must be finite and above 0, got 0.0.",
        make(pre_clip_scale=0.0),
    ),
    "scale that is no number": (
        TypeError,
        "pre_clip_scale must hold numbers, got 'big'.",
        make(pre_clip_scale="big"),
    ),
    "scale of another shape": (
        ValueError,
        "pre_clip_scale has an array of shape (7, 7, 7) for a parameter of shape",
        call(W, X, pre_clip_scale=np.ones((7, 7, 7))),
    ),
    "scale by element, another route": (
        ValueError,
        "cannot take the route 'ghost': it is scaled element by element before clipping.",
        call(W, X, pre_clip_scale=np.ones_like(W), routes={"*": "ghost"}),
    ),
    "scales of the loss": (
        ValueError,
        "loss_scale must be one number, got an array of (2,).",
        make(loss_scale=np.ones(2)),
    ),
    "scale of the loss that rounds": (
        ValueError,
        "loss_scale must be a power of two, such as 1024.0; got 1000.0.",
        make(loss_scale=1000.0),
    ),
    "too few arguments": (
        TypeError,
        "argument number 1 has a role in argnums, batch_argnums or prng_argnum, but the call has "
        "only 1 positional arguments; pass it by position.",
        call(W),
    ),
}  # fmt: skip
