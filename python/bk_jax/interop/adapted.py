"""Adapted: a private gradient whose arguments are objects of a model library.

The library's module says how a call becomes one of a pure function of trees (`pure_call`); all that a
private gradient can do then works with the objects as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bk_jax.grad_fn import ClippedSums, DPValueAndGrad
from bk_jax.planning.explain import Explanation

# The keyword under which a pure loss takes what the model holds besides its parameters. It belongs to
# the model and is public, whatever its number of rows.
STATE = "model_state"


class PureCall(NamedTuple):
    """A call without objects of a library: trees of arrays only.

    Attributes:
      loss_fn: the loss of the arguments below; it puts the objects together again.
      args: its positional arguments. The differentiated ones hold parameters and nothing else.
      kwargs: its keyword arguments, `STATE` among them.
      whole_aux: from the aux of `loss_fn`, in trees of arrays, to that of the library's user.
    """

    loss_fn: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    whole_aux: Callable[[Any], Any] = lambda aux: aux


@dataclasses.dataclass(eq=False)
class Adapted(DPValueAndGrad):
    """A private gradient that goes through `pure_call`."""

    def pure_call(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], *, abstract: bool = False
    ) -> PureCall:
        """The call in trees of arrays; an abstract one changes nothing and is not computed."""
        raise NotImplementedError

    def __call__(
        self, *args: Any, key: Any = None, is_padding_example: Any = None, **kwargs: Any
    ) -> Any:
        """Computes the value and the private gradient; see `bk_jax.dp_value_and_grad`."""
        grad_fn, call = self._pure(args, kwargs)
        value, *more = grad_fn(
            *call.args, key=key, is_padding_example=is_padding_example, **call.kwargs
        )
        if self.signature.has_aux:
            value = (value[0], call.whole_aux(value[1]))
        return (value, *more)

    def sums_of(
        self, args: Any, kwargs: Any, is_padding_example: Any, *, in_order: bool
    ) -> ClippedSums:
        """As in `DPValueAndGrad`."""
        grad_fn, call = self._pure(args, kwargs)
        found = grad_fn.sums_of(call.args, dict(call.kwargs), is_padding_example, in_order=in_order)
        return found._replace(aux=call.whole_aux(found.aux))

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """What happens to every parameter, why, and what it costs; computes nothing."""
        grad_fn, call = self._pure(args, kwargs, abstract=True)
        return grad_fn.explain(*call.args, **call.kwargs)

    def _pure(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], abstract: bool = False
    ) -> tuple[DPValueAndGrad, PureCall]:
        call = self.pure_call(args, kwargs, abstract=abstract)
        public = (*self.signature.shared_argnames, STATE)
        signature = dataclasses.replace(self.signature, shared_argnames=public)
        options = _options(self) | {"loss_fn": call.loss_fn, "signature": signature}
        return DPValueAndGrad(**options), call


def _options(grad_fn: DPValueAndGrad) -> dict[str, Any]:
    """The fields that every private gradient has."""
    return {
        field.name: getattr(grad_fn, field.name) for field in dataclasses.fields(DPValueAndGrad)
    }


def adapt(kind: Callable[..., Any], grad_fn: DPValueAndGrad, **more: Any) -> Any:
    """`grad_fn` as an `Adapted` of this kind."""
    adapted = kind(**_options(grad_fn), **more)
    vars(adapted).update({k: v for k, v in vars(grad_fn).items() if k not in vars(adapted)})
    return adapted
