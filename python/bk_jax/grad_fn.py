"""The function that `dp_value_and_grad` returns: a call of it, its two halves, and what explains it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bk_jax import _compat, validate
from bk_jax.clip import Clipping, make_clipping
from bk_jax.first_call import watch
from bk_jax.fitting import largest_fitting
from bk_jax.noise import add_noise
from bk_jax.planning.explain import Explanation, make_explanation
from bk_jax.planning.machine_rates import current_rates
from bk_jax.planning.methods import Method
from bk_jax.planning.plan import Plan, make_plan
from bk_jax.planning.routes import force_routes
from bk_jax.planning.scaled import apart, noted, why_tapped
from bk_jax.planning.seconds import predict
from bk_jax.planning.target import planning_rates
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
from bk_jax.scaling import make_scaling
from bk_jax.sharding.manual import Manual, check_noise
from bk_jax.sharding.manual import find as find_manual
from bk_jax.sharding.mesh_check import check_mesh
from bk_jax.sharding.partition import is_cut
from bk_jax.sharding.varying import vary
from bk_jax.summing.clipped_sum import Task, clipped_sum
from bk_jax.summing.microbatch import in_microbatches
from bk_jax.summing.stats import Stats, make_stats, mean_loss


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
    device: str | None = None
    pre_clip_scale: Any = None
    loss_scale: Any = None
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
        return self.sums_of(args, kwargs, is_padding_example, in_order=False)

    def sums_of(
        self, args: Any, kwargs: Any, is_padding_example: Any, *, in_order: bool
    ) -> ClippedSums:
        """`clipped_sums`; in order, large sums are made one after the other where that is possible.

        That is for what uses up each sum by reading it alone. Noise in place of a sum does not: XLA
        would copy the sum, which the order reads too.
        """
        check_mesh(args, kwargs)
        call = read_call(self.loss_fn, self.signature, args, kwargs)
        return self._clipped_sums(
            call, is_padding_example, in_order=in_order and not (call.manual or is_cut())
        )

    def release(self, sums: Any, key: Any = None, *, like: Any = None) -> Any:
        """The private gradient from sums of clipped gradients: noise once, then the division.

        Args:
          sums: a tree as `clipped_sums` returns it, or several added up. Each of the examples must be
            in them once: the noise is for one clipped gradient each.
          key: the key of the noise, as in a call.
          like: the parameters, whose dtypes the result has; default: the dtypes of the sums.
        """
        manual = self.check_release(key)
        return self._release(sums, key, sums if like is None else like, manual)

    def check_release(self, key: Any) -> Manual:
        """What `release` asks of a key, or an error; returns where in a `shard_map` we are."""
        validate.key_given(key, self.noise_multiplier)
        manual = find_manual(())
        if key is not None:
            check_noise(manual, key)
        return manual

    def noise_stddev(self) -> Any:
        """The standard deviation of the noise that is added to the sums, before they are divided."""
        return refuse_derivatives(self.noise_multiplier) * self._clip_sensitivity()

    def _differentiated(self, args: Sequence[Any]) -> Any:
        """The parameters as the gradients come back: one argument, or a tuple of them."""
        chosen = tuple(args[i] for i in self.signature.argnums)
        return chosen[0] if self.single else chosen

    def _plan(self, call: Call, clipping: Clipping) -> tuple[Traced, Plan]:
        """Traces the loss of one example and decides how each parameter is handled."""
        traced = trace_call(self.loss_fn, self.signature, call)
        found = find_sites(traced.jaxpr, traced.num_leaves)
        forced = force_routes(self.routes, traced.leaves)
        scales = clipping.scaling.shapes()
        forced = forced.tapping(why_tapped(found.sites, scales))
        rates = planning_rates(self.device)
        parts = apart(clipping.parts_of_leaves, scales)
        plan = make_plan(found, traced.leaves, parts, self.method, forced, rates)
        return traced, noted(plan, scales)

    def _goes_back_twice(self, traced: Traced) -> bool:
        """Whether the sum comes from a second back-propagation, as the method wants."""
        return self.method.second_backward and traced.is_surely_linear

    def _clipping(self, parameters: Parameters) -> Clipping:
        tree = parameters.treedef.children()[0] if self.single else parameters.treedef
        clip_norms = refuse_derivatives(self.l2_clip_norm)
        trainable = parameters.trainable
        shapes = [jnp.shape(array) for array in parameters.trainable_arrays()]
        scale = refuse_derivatives(self.pre_clip_scale)
        scaling = make_scaling(scale, self.loss_scale, tree, trainable, shapes)
        return make_clipping(clip_norms, self.clipping, tree, trainable, scaling)

    def _clipped_sums(
        self, call: Call, is_padding_example: Any, in_order: bool = False
    ) -> ClippedSums:
        watch()
        parameters, manual = call.parameters, call.manual
        is_padding = vary(_padding(is_padding_example, call.size), manual.examples)
        clipping = self._clipping(parameters)
        traced, plan = self._plan(call, clipping)
        arrays = [jnp.asarray(array) for array in parameters.trainable_arrays()]
        twice = self._goes_back_twice(traced)
        task = Task(traced, plan, clipping, twice, arrays, manual, loss_scale=self.loss_scale)
        size = 1 if self.method.loop else self._microbatch(call)
        if size is None or size >= call.size:
            result = clipped_sum(task._replace(in_order=in_order), call.examples, is_padding)
        else:
            result = in_microbatches(task, call.examples, is_padding, size)
        totals = [
            clipping.scaling.total(leaf, manual.add_up(total))
            for leaf, total in enumerate(result.sums)
        ]
        sums = parameters.unflatten(totals)
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
            with jax.named_scope("bk.noise"):
                totals = add_noise(totals, key, self.noise_stddev(), manual)
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
        explanations: list[Explanation] = []

        def prepare(arrays: Any, kwargs: Any) -> None:
            call = read_call(self.loss_fn, self.signature, merge_arrays(args, arrays), kwargs)
            explanations.append(self._explanation(call))

        jax.eval_shape(prepare, arrays_of(args), kwargs)
        return explanations[0]

    def _explanation(self, call: Call) -> Explanation:
        """From the plan, and from the batched pass as a program: nothing of it is kept."""
        traced, plan = self._plan(call, self._clipping(call.parameters))
        batching = Batching(call.size)
        backward = Backward(traced, plan.sites(), tuple(plan.tapped))
        arrays = call.parameters.trainable_arrays()
        batched = functools.partial(backward.batched, batching)
        jaxpr, _ = _compat.trace(batched, arrays, call.examples)
        groups = len(jax.tree_util.tree_leaves(self.l2_clip_norm))
        rates = current_rates(self.device)
        prediction = predict(
            count_work(jaxpr), plan, traced.leaves, call.size, rates,
            has_noise=validate.concrete(self.noise_multiplier, "noise_multiplier") != 0.0,
            passes=1 + groups if self._goes_back_twice(traced) else 1,
        )  # fmt: skip
        return make_explanation(traced, plan, call.size, prediction, rates, batching.fallbacks)

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


@repeated("dtype")
def _divided(total: jax.Array, by: Any, *, dtype: Any) -> jax.Array:
    return (total / by).astype(dtype)


def _padding(is_padding_example: Any, size: int) -> jax.Array:
    if is_padding_example is None:
        return jnp.zeros(size, jnp.bool_)
    validate.padding_mask(is_padding_example, size)
    return jnp.asarray(is_padding_example)
