"""The public names of bk_jax: what each public module lists in `__all__`."""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

# Public module, and what is in it.
MODULES = {
    "bk_jax": "the transform, and what stands around it",
    "bk_jax.privacy": "plans, ledgers",
    "bk_jax.sampling": "batches as the accounting assumes them",
    "bk_jax.training": "a training loop",
    "bk_jax.mechanisms": "correlated noise, adaptive clipping, participation",
    "bk_jax.peft": "low-rank updates and parts of a model",
    "bk_jax.audit": "tests of a private gradient",
    "bk_jax.random": "keys of 256 bits",
    "bk_jax.optimizers": "optimizers that an update takes in one pass",
    "bk_jax.overhead": "what privacy costs a step",
    "bk_jax.hlo": "what XLA compiled",
    "bk_jax.ops": "the operations, one by one",
    "bk_jax.interop.nnx": "Flax nnx",
    "bk_jax.interop.equinox": "Equinox",
    "bk_jax.interop.keras": "Keras 3",
    "bk_jax.interop.jax_privacy": "jax_privacy",
}


class Public(NamedTuple):
    """A public name and what it stands for."""

    module: str
    name: str
    value: Any

    @property
    def full(self) -> str:
        """As users write it."""
        return f"{self.module}.{self.name}"


def public_names() -> Iterator[Public]:
    """Every public name, in the order of the reference; modules among them have pages of their own."""
    for module in MODULES:
        found = importlib.import_module(module)
        for name in found.__all__:
            value = getattr(found, name)
            if not isinstance(value, types.ModuleType) and not name.startswith("__"):
                yield Public(module, name, value)


def doc_of(value: Any) -> str:
    """The docstring that somebody wrote for a value; not that of its type."""
    if not (inspect.isclass(value) or callable(value)):
        return ""
    text = inspect.getdoc(value) or ""
    generated = text.startswith(f"{getattr(value, '__name__', '')}(")  # by dataclass or NamedTuple
    return "" if generated else text


def methods_of(value: Any) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class defines itself."""
    if not inspect.isclass(value):
        return
    for name, member in vars(value).items():
        if name.startswith("_") and name != "__call__":
            continue
        if isinstance(member, (staticmethod, classmethod)):
            yield name, member.__func__
        elif inspect.isfunction(member) or isinstance(member, property):
            yield name, member


def has_example(value: Any) -> bool:
    """Whether a docstring of the value, or of one of its methods, has lines that run."""
    texts = [doc_of(value), *(inspect.getdoc(member) or "" for _, member in methods_of(value))]
    return any(">>> " in text for text in texts)
