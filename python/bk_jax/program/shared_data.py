"""What all examples see: arguments and constants that are not part of the batch.

The clipping bound is about what an example changes in its *own* gradient. Data of single examples that
every example sees, such as the labels of the whole batch, break it without a sign: one label moves all
gradients. An array that is no batch argument but has as many rows as the batch is therefore refused,
unless it is declared public by `shared_argnames`; a constant of that size is warned about.

A batch of one example is let through: there is nobody else to see it.
"""

from __future__ import annotations

import collections
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import jax

from bk_jax import _compat
from bk_jax.program.trace import Signature, is_array

Loss = TypeVar("Loss", bound=Callable[..., Any])
LISTED = 3  # leaves that a message names


class BatchSizedConstantWarning(UserWarning):
    """The loss closes over an array with as many rows as the batch.

    >>> import bk_jax, jax.numpy as jnp, warnings
    >>> labels = jnp.arange(4.0)  # of all examples: every example would see them
    >>> grad_fn = bk_jax.clipped_value_and_grad(lambda w, x: jnp.mean((x @ w - labels) ** 2))
    >>> with warnings.catch_warnings(record=True) as found:
    ...     warnings.simplefilter("always")
    ...     _ = grad_fn(jnp.ones(3), jnp.ones((4, 3)))
    >>> [w.category.__name__ for w in found]
    ['BatchSizedConstantWarning']
    """


class _Found(NamedTuple):
    """A leaf with one entry per example, in an argument that is not part of the batch."""

    argument: str  # its name, or how to speak of it
    position: int | None
    leaf: str


def sharing(loss_fn: Loss, *names: str) -> Loss:
    """The same loss, which says itself that these arguments are public."""
    vars(loss_fn)["shared_argnames"] = (*getattr(loss_fn, "shared_argnames", ()), *names)
    return loss_fn


def parameter_names(function: Callable[..., Any]) -> list[str]:
    """Names of the positional parameters, as far as Python knows them.

    >>> parameter_names(lambda params, batch, *, scale: 0.0)
    ['params', 'batch']
    """
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in found if p.kind in kinds]


def shared_arguments(
    loss_fn: Callable[..., Any],
    signature: Signature,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Iterator[tuple[str, int | None, Any]]:
    """Name, position and value of every argument that all examples see and nobody declared public."""
    names = parameter_names(loss_fn)
    for position, value in enumerate(args):
        name = names[position] if position < len(names) else f"argument {position}"
        if position not in signature.roles and name not in signature.shared_argnames:
            yield name, position, value
    for name, value in kwargs.items():
        if name not in signature.shared_argnames:
            yield name, names.index(name) if name in names else None, value


def check_shared(
    loss_fn: Callable[..., Any],
    signature: Signature,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    size: int,
) -> None:
    """Raises if an argument that is not part of the batch has one entry for each of `size` examples."""
    if size < 2:
        return
    found = [
        _Found(name, position, leaf)
        for name, position, value in shared_arguments(loss_fn, signature, args, kwargs)
        for leaf in batch_sized_leaves(value, size)
    ]
    if found:
        raise ValueError(_refusal(loss_fn, signature, found, size))


def batch_sized_leaves(value: Any, size: int) -> list[str]:
    """Paths of the arrays, or lists of numbers, in a tree that have one entry for each example."""

    def is_numbers(node: Any) -> bool:
        return isinstance(node, list | tuple) and len(node) == size and all(map(_is_number, node))

    leaves, _ = jax.tree_util.tree_flatten_with_path(value, is_leaf=is_numbers)
    return [
        jax.tree_util.keystr(path, simple=True, separator="/")
        for path, leaf in leaves
        if is_numbers(leaf) or (is_array(leaf) and leaf.shape[:1] == (size,))
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or (is_array(value) and value.ndim == 0)


def _refusal(
    loss_fn: Callable[..., Any], signature: Signature, found: Sequence[_Found], size: int
) -> str:
    listing = ", ".join(
        f"{f.argument!r}" + (f" at {f.leaf!r}" if f.leaf else "") for f in found[:LISTED]
    )
    more = f" and {len(found) - LISTED} more" if len(found) > LISTED else ""
    arguments = list(dict.fromkeys((f.argument, f.position) for f in found))
    named = [name for name, _ in arguments]
    return (
        f"{listing}{more}: an array with {size} rows, one for each of the {size} examples of the batch, "
        "in an argument that is not part of the batch. Every example would see the rows of all others, "
        "and clipping would bound nothing. If it holds data of the examples, "
        f"{_call_to_write(loss_fn, signature, arguments)} If it is public and the same for all "
        f"examples, say so: shared_argnames={tuple(named) if len(named) > 1 else named[0]!r}."
    )


def _call_to_write(
    loss_fn: Callable[..., Any], signature: Signature, arguments: Sequence[tuple[str, int | None]]
) -> str:
    """The construction and the call that make the arguments part of the batch."""
    without = [name for name, position in arguments if position is None]
    if without:
        names = ", ".join(without)
        return f"make {names} a positional parameter of the loss and name it in batch_argnums."
    positions = sorted({*signature.batch_argnums, *(p for _, p in arguments if p is not None)})
    known = dict(enumerate(parameter_names(loss_fn)))
    last = max(*signature.roles, *positions)
    call = ", ".join(known.get(i, f"arg{i}") for i in range(last + 1))
    return f"write batch_argnums={tuple(positions)} and call grad_fn({call}) by position."


def warn_constants(jaxpr: Any, public: Sequence[Any], size: int) -> None:
    """Warns about constants of the traced loss that have one row for each example.

    `public` are arrays that are constants of the traced loss by right: shared arguments, integer
    parameters. They are told apart by shape and dtype.
    """
    if size < 2:
        return
    known = collections.Counter(_kind(array) for array in public if is_array(array))
    for kind, source in _constants(jaxpr):
        if kind[0][:1] != (size,):
            continue
        if known[kind] > 0:
            known[kind] -= 1
            continue
        warnings.warn(
            _constant_message(kind, source, size), BatchSizedConstantWarning, stacklevel=2
        )


def _kind(array: Any) -> tuple[tuple[int, ...], str]:
    return tuple(array.shape), str(array.dtype)


def _constants(jaxpr: Any) -> Iterator[tuple[tuple[tuple[int, ...], str], str]]:
    """Shape and dtype of every constant at any depth, and the line that uses it first."""
    opened, consts = _compat.split_closed(jaxpr)
    users: dict[Any, Any] = {}
    for eqn in opened.eqns:
        for var in eqn.invars:
            if not _compat.is_literal(var):
                users.setdefault(var, eqn)
        for inner in _compat.inner_jaxprs(eqn):
            yield from _constants(inner)
    for var, const in zip(opened.constvars, consts, strict=True):
        yield _kind(const), _compat.source_line(users[var]) if var in users else ""


def _constant_message(kind: tuple[tuple[int, ...], str], source: str, size: int) -> str:
    shape, dtype = kind
    where = f", used at {source}," if source else ""
    return (
        f"the loss closes over a constant {dtype}{list(shape)}{where} whose {size} rows are as many as "
        "the examples of the batch. If they are data of the examples (labels, weights), every example "
        "sees those of all others, and clipping bounds nothing: pass them as an argument that "
        "batch_argnums names. If they are public, pass them as an argument that shared_argnames names, "
        "or ignore bk_jax.BatchSizedConstantWarning."
    )
