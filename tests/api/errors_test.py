"""Every error message, and that there is none without a test."""

import ast
import re
import traceback
from pathlib import Path

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from support.models import linear_loss

import bk_jax

PACKAGE = Path(bk_jax.__file__).parent
MODULES = [
    "api.py",
    "clip.py",
    "planning/methods.py",
    "planning/routes.py",
    "relations.py",
    "validate.py",
]

W = np.ones((3, 2), np.float32)
X = np.ones((4, 3), np.float32)


def dense(w, x):
    return jnp.sum(x @ w)


def make(**options):
    """The transform alone: errors that need no call."""
    return lambda: bk_jax.dp_value_and_grad(dense, **options)


def call(*args, loss=dense, key=None, is_padding_example=None, **options):
    """The transform and one call of it."""
    options = {"noise_multiplier": 0.0, **options}

    def run():
        grad_fn = bk_jax.dp_value_and_grad(loss, **options)
        return grad_fn(*args, key=key, is_padding_example=is_padding_example)

    return run


def call_with(w):
    """A call of the transform as a function of the batch."""
    return lambda x: bk_jax.dp_value_and_grad(dense, noise_multiplier=0.0)(w, x)


def symbolic(sizes):
    """A batch whose sizes are not known."""
    return jax.ShapeDtypeStruct(jax.export.symbolic_shape(sizes), np.float32)


def traced_clip_norm(value):
    """A clip norm that is known only when the program runs."""
    return lambda: jax.jit(
        lambda norm: bk_jax.dp_value_and_grad(dense, l2_clip_norm=norm, noise_multiplier=0.0)(W, X)
    )(value)


def regularised(w, x):
    return jnp.sum(x @ w) + jnp.sum(jnp.square(w))


def joined(params, x):
    return jnp.sum(x @ jnp.concatenate([params["a"], params["b"]], axis=1))


# (exception, its text, what raises it)
CASES = {
    "option that is no number": (
        TypeError,
        "noise_multiplier must be a number, got None.",
        make(noise_multiplier=None),
    ),
    "no clip norm at all": (ValueError, "l2_clip_norm holds no number", make(l2_clip_norm={})),
    # options
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
    "microbatch of zero": (
        ValueError,
        "microbatch_size must be a whole number of at least 1 or None, got 0.",
        make(microbatch_size=0),
    ),
    "microbatch of half": (
        ValueError,
        "microbatch_size must be a whole number of at least 1 or None, got 0.5.",
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
    # argument numbers
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
    "too few arguments": (
        TypeError,
        "argument number 1 has a role in argnums, batch_argnums or prng_argnum, but the call has "
        "only 1 positional arguments; pass it by position.",
        call(W),
    ),
    # keys
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
    # parameters
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
    # the loss
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
    # the batch
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
    # routes
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
}  # fmt: skip


RAISED = {}  # case -> the statement that it ended in


@pytest.mark.parametrize("name", CASES)
def test_message(name):
    exception, text, action = CASES[name]
    with pytest.raises(exception, match=re.escape(text)) as info:
        action()
    RAISED[name] = place(info.value)


def test_messages_are_the_same_inside_jit():
    with pytest.raises(ValueError, match="noise needs a key"):
        jax.jit(bk_jax.dp_value_and_grad(dense))(W, X)
    with pytest.raises(TypeError, match="loss_fn must return a scalar"):
        jax.jit(bk_jax.dp_value_and_grad(lambda w, x: x @ w, noise_multiplier=0.0))(W, X)


def test_an_error_of_the_loss_itself_comes_through():
    def loss(w, x):
        raise RuntimeError("my own mistake")

    with pytest.raises(RuntimeError, match="my own mistake"):
        bk_jax.dp_value_and_grad(loss, noise_multiplier=0.0)(W, X)


def test_unknown_options_are_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'clip_norm'"):
        bk_jax.dp_value_and_grad(linear_loss, clip_norm=1.0)


def raise_statements():
    """`{(module, line)}` of every `raise` in the modules above."""
    found = {}
    for name in MODULES:
        tree = ast.parse((PACKAGE / name).read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Raise):
                found.update(dict.fromkeys([(name, node.lineno)], ast.unparse(node)))
    return found


def place(error):
    """The statement of ours that raised an error."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if Path(f.filename).is_relative_to(PACKAGE)]
    return Path(ours[-1].filename).relative_to(PACKAGE).as_posix(), ours[-1].lineno


def test_no_error_is_without_a_test():
    for name in CASES.keys() - RAISED.keys():  # those that ran in another process
        test_message(name)
    untested = {k: v for k, v in raise_statements().items() if k not in RAISED.values()}
    assert not untested, f"add a case to CASES for each of {untested}"
