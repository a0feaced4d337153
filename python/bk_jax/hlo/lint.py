"""Lint: findings about a compiled private step, each from its own small rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bk_jax.hlo import rules
from bk_jax.hlo.collectives import private_collectives
from bk_jax.hlo.context import Context, Finding, Limits
from bk_jax.hlo.model import Module
from bk_jax.hlo.table import counted

Rule = Callable[[Context], Iterator[Finding]]

RULES: dict[str, Rule] = {
    "per-sample-gradient": rules.per_sample_gradients,
    "weight-gradient-dot": rules.weight_gradient_dots,
    "layout-copy": rules.layout_copies,
    "activation-collective": rules.activation_collectives,
    "private-collective": private_collectives,
    "missing-call": rules.missing_calls,
    "unknown-batch-size": rules.unknown_batch_size,
}
DESCRIPTIONS = {name: (rule.__doc__ or "").splitlines()[0] for name, rule in RULES.items()}


def check(
    module: Module,
    *,
    explanation: Any = None,
    batch_size: int | None = None,
    limits: Limits | None = None,
    only: Sequence[str] | None = None,
) -> list[Finding]:
    """The findings of all rules, most serious first.

    Args:
      module: a private train step.
      explanation: what `dp_value_and_grad(...).explain(...)` returned, or its `to_json()` read
        back. If given, every call it promises must be there.
      batch_size: examples in the step; read from the clip factors if omitted.
      limits: how many bytes are too many.
      only: names of rules; all by default.

    >>> import bk_jax, bk_jax.hlo, jax, jax.numpy as jnp
    >>> grad_fn = bk_jax.clipped_value_and_grad(lambda w, x: jnp.sum(jnp.tanh(x @ w)))
    >>> step = jax.jit(grad_fn).lower(jnp.ones((3, 2)), jnp.ones((4, 3)))
    >>> module, = bk_jax.hlo.load(step)
    >>> check(module, only=["missing-call"])
    []
    """
    context = Context.make(module, explanation, batch_size, limits or Limits())
    findings = [found for name in only or RULES for found in RULES[name](context)]
    return sorted(findings, key=lambda f: (_LEVELS.index(f.level), -f.nbytes, f.instruction))


_LEVELS = ("error", "warning", "note")


def fails(findings: Sequence[Finding]) -> bool:
    """Whether a gate should stay closed: notes alone do no harm.

    >>> from bk_jax.hlo import Finding
    >>> fails([Finding("layout-copy", "note", "copy.1", (), 0, "a copy")])
    False
    """
    return any(finding.level != "note" for finding in findings)


def findings_text(module: Module, findings: Sequence[Finding]) -> str:
    """One line per finding."""
    if not findings:
        return f"{module.name}: nothing found"
    lines = [f"{f.level}: {f.rule}: {f.message}" for f in findings]
    return "\n".join([f"{module.name}: {counted(len(findings), 'finding')}", *lines])


def findings_dict(module: Module, findings: Sequence[Finding]) -> dict[str, Any]:
    """For JSON."""
    found = [dataclasses.asdict(finding) for finding in findings]
    return {"module": module.name, "failed": fails(findings), "findings": found}
