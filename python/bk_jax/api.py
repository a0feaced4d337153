"""The public transform: `dp_value_and_grad`."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, SupportsIndex

import jax
import jax.numpy as jnp

from bk_jax import _compat, validate
from bk_jax.clip import Clipping, ClippingFunction, make_clipping
from bk_jax.fitting import largest_fitting
from bk_jax.noise import add_noise
from bk_jax.planning.explain import Explanation, make_explanation
from bk_jax.planning.machine_rates import current_rates
from bk_jax.planning.methods import Method, get_method
from bk_jax.planning.plan import Plan, make_plan
from bk_jax.planning.routes import force_routes
from bk_jax.planning.seconds import predict
from bk_jax.planning.work import count_work
from bk_jax.program.backward import Backward
from bk_jax.program.batching import Batching
from bk_jax.program.call import Call, read_call, trace_call
from bk_jax.program.derivatives import refuse_derivatives
from bk_jax.program.plain import plain_value_and_grad
from bk_jax.program.sites import find_sites
from bk_jax.program.trace import Parameters, Signature, Traced, arrays_of, merge_arrays
from bk_jax.relations import CHANGED, relation_name
from bk_jax.repeated import repeated
from bk_jax.sharding.manual import Manual, check_noise
from bk_jax.sharding.manual import find as find_manual
from bk_jax.sharding.mesh_check import check_mesh
from bk_jax.sharding.varying import vary
from bk_jax.summing.clipped_sum import Task, clipped_sum
from bk_jax.summing.microbatch import in_microbatches
from bk_jax.summing.stats import Stats, make_stats, mean_loss

__all__ = ["ClippedSums", "DPValueAndGrad", "Stats", "clipped_value_and_grad", "dp_value_and_grad"]


class ClippedSums(NamedTuple):
    """Sums of clipped gradients, and what came with them. Not private before `release`.

    Attributes:
      sums: a tree like the gradients.
      value: the mean loss of real examples.
      aux: per example, as the loss returned it.
      stats: see `Stats`.
    """

    sums: Any
    value: jax.Array
    aux: Any
    stats: Stats


def dp_value_and_grad(
    loss_fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    l2_clip_norm: Any = 1.0,
    noise_multiplier: Any = 1.0,
    normalize_by: Any = 1.0,
    clipping: str | ClippingFunction = "abadi",
    batch_argnums: int | Sequence[int] = 1,
    keep_batch_dim: bool = True,
    prng_argnum: int | None = None,
    shared_argnames: str | Sequence[str] = (),
    method: str = "auto",
    routes: Mapping[str, str] | None = None,
    microbatch_size: int | str | None = None,
    memory_limit: int | float | None = None,
    return_stats: bool = False,
    dtype: Any = None,
) -> DPValueAndGrad:
    """Like `jax.value_and_grad`, with every example's gradient clipped and noise added to the sum.

    The gradient that comes back is

        (sum_i C_i g_i + noise_multiplier * sensitivity * N(0, I)) / normalize_by

    where `g_i` is the gradient of `loss_fn` at example `i` alone and `C_i` scales it so that its norm
    is at most `l2_clip_norm`.

    >>> import jax, jax.numpy as jnp, bk_jax
    >>> def loss_fn(w, batch):
    ...     x, y = batch
    ...     return jnp.mean((x @ w - y) ** 2)
    >>> w = jnp.zeros(2)
    >>> batch = (jnp.asarray([[3.0, 4.0], [0.3, 0.4]]), jnp.asarray([-1.0, -1.0]))
    >>> grad_fn = bk_jax.dp_value_and_grad(loss_fn, l2_clip_norm=2.0, noise_multiplier=0.0)
    >>> value, grad = jax.jit(grad_fn)(w, batch)
    >>> print(value, [f"{g:.3f}" for g in grad])  # gradients (6, 8) and (0.6, 0.8): norms 10 and 1
    1.0 ['1.800', '2.400']

    Args:
      loss_fn: the loss of ONE example. It sees a batch whose leading axis has size 1
        (`keep_batch_dim=True`: ordinary batched model code works unchanged) or the bare example
        (`False`). Examples are computed side by side, as under `vmap`: one cannot influence another's
        gradient; a BatchNorm in training mode sees one example.
      argnums: the argument(s) to differentiate, as in `jax.value_and_grad`.
      has_aux: whether `loss_fn` returns `(loss, aux)`; aux comes back stacked per example.
      l2_clip_norm: the clip norm R, a number or traced scalar; or a tree of numbers that is a prefix
        of the parameters: then each subtree is clipped by itself, and the sensitivity is the root of
        the sum of squares.
      noise_multiplier: the noise's standard deviation in units of the sensitivity. With `0.0` the
        result is a clipped sum, which is not private, and no key is taken.
      normalize_by: a public constant to divide by, such as the expected batch size. Never the actual
        size of a sampled batch: that is private.
      clipping: `"abadi"` min(R/n, 1), `"automatic"` R/(n + 0.01), `"normalize"` R/n, `"indicator"`
        1 if n <= R else 0, or a function from norms to factors (it is cut off at R/n).
      batch_argnums: the argument(s) with a leading axis of examples.
      keep_batch_dim: see `loss_fn`.
      prng_argnum: an argument that is a PRNG key for `loss_fn` (dropout); each example gets its own.
      shared_argnames: names of arguments that are public and the same for all examples. Needed only
        for one that happens to have as many rows as the batch: without it that is an error, because
        it looks like data of the examples (labels) that `batch_argnums` forgot.
      method: `"auto"`, or a method of the paper by name; see `bk_jax.planning.methods`.
      routes: forces the route of parameters, as a mapping from patterns of their paths to `"ghost"`,
        `"fused"`, `"store"`, `"sparse"` or `"leaf"`, for example `{"*/kernel": "ghost"}`.
      microbatch_size: computes the sum in a scan over this many examples at a time, for batches that
        do not fit otherwise. The result is the same. `"auto"`: the largest that fits into
        `memory_limit`, or into the device's memory, by XLA's analysis of the compiled step.
      memory_limit: the temporary memory that the gradient may take: a whole number of bytes, or a
        float, which is a share of what the plain step takes (`0.7`). Implies
        `microbatch_size="auto"`: the largest number of examples at a time that stays below it, found
        by compiling a step of each size that is tried. Without it, time is what counts.
      return_stats: whether to return `Stats` as a last element.
      dtype: dtype of the returned gradient; default: that of the parameter.

    Returns:
      A function `grad_fn(*args, key=None, is_padding_example=None, **kwargs)` that returns
      `(value, grads)`, `((value, aux), grads)` with `has_aux`, and one element more with
      `return_stats`. `value` is the mean loss over real examples; it is not private.

    Edge cases, each with a test:

    | case | result |
    |---|---|
    | empty batch | value 0, zero gradient, noised |
    | padding example (`is_padding_example`) | contributes exactly 0, even with NaN inside |
    | example whose gradient is NaN or infinite | contributes exactly 0, counted in `nonfinite_count` |
    | R = 0 | zero gradient; with noise: exactly zero noise as well |
    | R = inf | no clipping; allowed with `noise_multiplier=0.0` only |
    | zero gradient | stays zero, factor as in `bk_jax.ops.clip_factor` |
    | integer or boolean leaf | zeros of its own dtype, no noise |
    | parameter that the loss does not use | zero gradient, noised |
    | empty parameter tree | the value and an empty gradient |
    """
    signature = Signature(
        argnums=_as_tuple(argnums),
        batch_argnums=_as_tuple(batch_argnums),
        prng_argnum=prng_argnum,
        has_aux=has_aux,
        keep_batch_dim=keep_batch_dim,
        shared_argnames=_shared_names(loss_fn, shared_argnames),
    )
    validate.loss_parameters(loss_fn, signature.roles)
    validate.argument_numbers(signature.argnums, signature.batch_argnums, prng_argnum)
    validate.clipping(clipping)
    validate.normalize_by(normalize_by)
    validate.microbatch_size(microbatch_size)
    validate.memory_limit(memory_limit, microbatch_size)
    validate.gradient_dtype(dtype)
    clip_norms = jax.tree_util.tree_leaves(l2_clip_norm)
    validate.clip_norms(clip_norms, clipping)
    validate.noise(noise_multiplier, clip_norms)
    grad_fn = DPValueAndGrad(
        loss_fn=loss_fn,
        signature=signature,
        single=isinstance(argnums, SupportsIndex),
        l2_clip_norm=l2_clip_norm,
        noise_multiplier=noise_multiplier,
        normalize_by=normalize_by,
        clipping=clipping,
        method=get_method(method),
        routes=dict(routes or {}),
        microbatch_size=microbatch_size if memory_limit is None else "auto",
        memory_limit=memory_limit,
        return_stats=return_stats,
        dtype=dtype,
    )
    functools.update_wrapper(grad_fn, loss_fn, updated=())
    return grad_fn


def clipped_value_and_grad(
    loss_fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    **options: Any,
) -> DPValueAndGrad:
    """`dp_value_and_grad` without noise, for people who add their own.

    The result is a sum of clipped gradients and NOT private until noise of the right size is added:
    `noise_multiplier * grad_fn.sensitivity()`. Takes all other options of `dp_value_and_grad`.

    >>> import bk_jax
    >>> grad_fn = bk_jax.clipped_value_and_grad(lambda w, x: (w * x).sum(), l2_clip_norm=1.0)
    >>> value, grad = grad_fn(jnp.zeros(2), jnp.asarray([[3.0, 4.0]]))
    >>> print([f"{g:.4f}" for g in grad], grad_fn.sensitivity())
    ['0.6000', '0.8000'] 1.0
    """
    if "noise_multiplier" in options:
        raise TypeError(
            "clipped_value_and_grad adds no noise; use dp_value_and_grad for noise_multiplier."
        )
    return dp_value_and_grad(loss_fn, argnums, has_aux, noise_multiplier=0.0, **options)


def _shared_names(loss_fn: Any, names: str | Sequence[str]) -> tuple[str, ...]:
    """Those that the caller names and those that the loss names itself, as `bk_jax.peft`'s do."""
    given = (names,) if isinstance(names, str) else tuple(names)
    return (*given, *getattr(loss_fn, "shared_argnames", ()))


@repeated("dtype")
def _divided(total: jax.Array, by: Any, *, dtype: Any) -> jax.Array:
    return (total / by).astype(dtype)


def _as_tuple(numbers: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(numbers, SupportsIndex):
        return (operator.index(numbers),)
    return tuple(operator.index(number) for number in numbers)


@dataclasses.dataclass(eq=False)
class DPValueAndGrad:
    """The function that `dp_value_and_grad` returns."""

    loss_fn: Callable[..., Any]
    signature: Signature
    single: bool
    l2_clip_norm: Any
    noise_multiplier: Any
    normalize_by: Any
    clipping: Any
    method: Method
    routes: Mapping[str, str]
    microbatch_size: int | str | None
    memory_limit: int | float | None
    return_stats: bool
    dtype: Any
    fitting: dict[Any, int] = dataclasses.field(default_factory=dict, repr=False)

    def __call__(
        self, *args: Any, key: Any = None, is_padding_example: Any = None, **kwargs: Any
    ) -> Any:
        """Computes the value and the private gradient; see `dp_value_and_grad`."""
        validate.key_given(key, self.noise_multiplier)
        check_mesh(args, kwargs)
        call = read_call(self.loss_fn, self.signature, args, kwargs)
        if key is not None:
            check_noise(call.manual, key)
        found = self._clipped_sums(call, is_padding_example)
        grads = self._release(found.sums, key, self._differentiated(args), call.manual)
        out = ((found.value, found.aux) if self.signature.has_aux else found.value, grads)
        return (*out, found.stats) if self.return_stats else out

    def clipped_sums(
        self, *args: Any, is_padding_example: Any = None, **kwargs: Any
    ) -> ClippedSums:
        """The sum of clipped gradients, in float32 at least, without noise. NOT private.

        Sums of several batches may be added up before `release`: a logical batch in parts, with one
        draw of noise (`bk_jax.sampling.accumulated` does that).

        >>> import bk_jax
        >>> grad_fn = bk_jax.dp_value_and_grad(lambda w, x: (w * x).sum(), normalize_by=2.0)
        >>> parts = [grad_fn.clipped_sums(jnp.zeros(1), jnp.ones((3, 1))).sums for _ in range(2)]
        >>> print(parts[0])
        [3.]
        >>> grads = grad_fn.release(parts[0] + parts[1], key=bk_jax.random.key())
        """
        check_mesh(args, kwargs)
        call = read_call(self.loss_fn, self.signature, args, kwargs)
        return self._clipped_sums(call, is_padding_example)

    def release(self, sums: Any, key: Any = None, *, like: Any = None) -> Any:
        """The private gradient from sums of clipped gradients: noise once, then the division.

        Args:
          sums: a tree as `clipped_sums` returns it, or several added up. Each of the examples must be
            in them once: the noise is for one clipped gradient each.
          key: the key of the noise, as in a call.
          like: the parameters, whose dtypes the result has; default: the dtypes of the sums.
        """
        validate.key_given(key, self.noise_multiplier)
        manual = find_manual(())
        if key is not None:
            check_noise(manual, key)
        return self._release(sums, key, sums if like is None else like, manual)

    def _differentiated(self, args: Sequence[Any]) -> Any:
        """The parameters as the gradients come back: one argument, or a tuple of them."""
        chosen = tuple(args[i] for i in self.signature.argnums)
        return chosen[0] if self.single else chosen

    def _plan(self, call: Call, clipping: Clipping) -> tuple[Traced, Plan]:
        """Traces the loss of one example and decides how each parameter is handled."""
        traced = trace_call(self.loss_fn, self.signature, call)
        found = find_sites(traced.jaxpr, traced.num_leaves)
        forced = force_routes(self.routes, traced.leaves)
        return traced, make_plan(found, traced.leaves, clipping.groups, self.method, forced)

    def _clipping(self, parameters: Parameters) -> Clipping:
        tree = parameters.treedef.children()[0] if self.single else parameters.treedef
        clip_norms = refuse_derivatives(self.l2_clip_norm)
        return make_clipping(clip_norms, self.clipping, tree, parameters.trainable)

    def _clipped_sums(self, call: Call, is_padding_example: Any) -> ClippedSums:
        parameters, manual = call.parameters, call.manual
        is_padding = vary(_padding(is_padding_example, call.size), manual.examples)
        clipping = self._clipping(parameters)
        traced, plan = self._plan(call, clipping)
        arrays = [jnp.asarray(array) for array in parameters.trainable_arrays()]
        twice = self.method.second_backward and traced.is_surely_linear
        task = Task(traced, plan, clipping, twice, arrays, manual)
        size = 1 if self.method.loop else self._microbatch(call)
        if size is None or size >= call.size:
            result = clipped_sum(task, call.examples, is_padding)
        else:
            result = in_microbatches(task, call.examples, is_padding, size)
        sums = parameters.unflatten([manual.add_up(total) for total in result.sums])
        return ClippedSums(
            sums[0] if self.single else sums,
            mean_loss(result.losses, is_padding, manual),
            jax.tree_util.tree_unflatten(traced.aux_treedef, result.aux),
            make_stats(result, is_padding, manual),
        )

    def _microbatch(self, call: Call) -> int | None:
        """How many examples are taken at a time; `None`: all of them."""
        if not isinstance(self.microbatch_size, str):
            return self.microbatch_size
        arrays = arrays_of((call.args, dict(call.kwargs)))
        types = tuple(map(jax.typeof, arrays))
        if types not in self.fitting:
            self.fitting[types] = self._fit(call, arrays)
        return self.fitting[types]

    def _fit(self, call: Call, arrays: Sequence[Any]) -> int:
        """The largest microbatch that the memory allows."""

        def private(size: int, *arrays: Any) -> Any:
            args, kwargs = merge_arrays((call.args, dict(call.kwargs)), arrays)
            fixed = dataclasses.replace(self, microbatch_size=size, memory_limit=None)
            return fixed.clipped_sums(*args, **kwargs)

        def plain(*arrays: Any) -> Any:
            args, kwargs = merge_arrays((call.args, dict(call.kwargs)), arrays)
            return plain_value_and_grad(self.loss_fn, self.signature, args, **kwargs)

        return largest_fitting(private, plain, arrays, call.size, self.memory_limit)

    def _release(self, sums: Any, key: Any, like: Any, manual: Manual) -> Any:
        leaves, treedef = jax.tree_util.tree_flatten(sums)
        real = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        totals = [leaves[i] for i in real]
        if key is not None:
            sigma = refuse_derivatives(self.noise_multiplier)
            stddev = sigma * self._clip_sensitivity()
            with jax.named_scope("bk.noise"):
                totals = add_noise(totals, key, stddev, manual)
        dtypes = [jax.typeof(leaf).dtype for leaf in jax.tree_util.tree_leaves(like)]
        for i, total in zip(real, totals, strict=True):
            leaves[i] = _divided(total, self.normalize_by, dtype=jnp.dtype(self.dtype or dtypes[i]))
        return jax.tree_util.tree_unflatten(treedef, leaves)

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """What happens to every parameter, why, and what it costs; computes nothing.

        Takes the arguments of a call, as arrays or `jax.ShapeDtypeStruct`s.

        >>> import bk_jax
        >>> def loss_fn(params, x):
        ...     return jnp.sum(jnp.tanh(x @ params["kernel"] + params["bias"]))
        >>> params = {"kernel": jnp.zeros((3, 5)), "bias": jnp.zeros(5)}
        >>> explanation = bk_jax.dp_value_and_grad(loss_fn).explain(params, jnp.zeros((8, 3)))
        >>> explanation.routes()
        {'bias': 'leaf', 'kernel': 'ghost'}
        """
        prepared: list[tuple[Traced, Plan, Batching]] = []

        def prepare(arrays: Any, kwargs: Any) -> Any:
            call = read_call(self.loss_fn, self.signature, merge_arrays(args, arrays), kwargs)
            traced, plan = self._plan(call, self._clipping(call.parameters))
            batching = Batching(call.size)
            backward = Backward(traced, plan.sites(), tuple(plan.tapped))
            prepared.append((traced, plan, batching))
            return backward.batched(batching, call.parameters.trainable_arrays(), call.examples)

        jaxpr, _ = _compat.trace(prepare, arrays_of(args), kwargs)
        ((traced, plan, batching),) = prepared
        groups = len(jax.tree_util.tree_leaves(self.l2_clip_norm))
        twice = self.method.second_backward and traced.is_surely_linear
        rates = current_rates()
        prediction = predict(
            count_work(jaxpr), plan, traced.leaves, batching.size, rates,
            has_noise=validate.concrete(self.noise_multiplier, "noise_multiplier") != 0.0,
            passes=1 + groups if twice else 1,
        )  # fmt: skip
        return make_explanation(traced, plan, batching.size, prediction, rates, batching.fallbacks)

    def sensitivity(self, neighboring_relation: Any = "add_or_remove_one") -> Any:
        """How far one example can move the noiseless result, in Euclidean norm.

        Args:
          neighboring_relation: one of `dp_accounting.NeighboringRelation` or its name, such as
            `plan.neighboring_relation`. Replacing one example by another counts twice.

        >>> import bk_jax
        >>> grad_fn = bk_jax.dp_value_and_grad(lambda w, x: 0.0, l2_clip_norm=3.0, normalize_by=2.0)
        >>> grad_fn.sensitivity()
        1.5
        >>> grad_fn.sensitivity("replace_one")
        3.0
        """
        changed = CHANGED[relation_name(neighboring_relation)]
        return changed * (self._clip_sensitivity() / self.normalize_by)

    def _clip_sensitivity(self) -> Any:
        """How far one example can move the clipped sum, before it is divided."""
        norms = tuple(jax.tree_util.tree_leaves(self.l2_clip_norm))
        return Clipping(norms, (), self.clipping).sensitivity()


def _padding(is_padding_example: Any, size: int) -> jax.Array:
    if is_padding_example is None:
        return jnp.zeros(size, jnp.bool_)
    validate.padding_mask(is_padding_example, size)
    return jnp.asarray(is_padding_example)
