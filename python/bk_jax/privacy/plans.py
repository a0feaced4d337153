"""Plans of every kind as JSON: what a ledger writes down, and reads again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from bk_jax import mechanisms
from bk_jax.privacy.correlated_plan import CorrelatedPlan
from bk_jax.privacy.privacy_plan import PrivacyPlan

Plan = PrivacyPlan | CorrelatedPlan

KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        CorrelatedPlan,
        mechanisms.AdaptiveClipping,
        mechanisms.BandedInverse,
        mechanisms.BandedToeplitz,
        mechanisms.BufferedToeplitz,
        mechanisms.CyclicPoisson,
        mechanisms.FixedEpochs,
        mechanisms.MinSeparation,
        mechanisms.SingleParticipation,
    )
}


def to_fields(plan: Plan) -> dict[str, Any]:
    """The plan as names and values; whatever is no `PrivacyPlan` has a "kind" too."""
    if not isinstance(plan, PrivacyPlan):
        return _described(plan)
    fields = dataclasses.asdict(plan)
    del fields["adaptive"]  # as ledgers were written before there was any
    return fields if plan.adaptive is None else fields | {"adaptive": _described(plan.adaptive)}


def from_fields(fields: Mapping[str, Any]) -> Plan:
    """The plan that `to_fields` described; an error if it makes no sense."""
    made: Plan = _made(fields) if "kind" in fields else PrivacyPlan(**_values(fields))
    return made


def _described(value: Any) -> dict[str, Any]:
    kind = type(value).__name__
    if KINDS.get(kind) is not type(value):
        raise TypeError(f"a ledger can keep one of {', '.join(KINDS)}; got {value!r}.")
    found = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    parts = {name: _described(x) if dataclasses.is_dataclass(x) else x for name, x in found.items()}
    return {"kind": kind} | parts


def _made(fields: Mapping[str, Any]) -> Any:
    values = _values(fields)
    kind = values.pop("kind")
    if kind not in KINDS:
        raise ValueError(f"a plan of the kind {kind!r}, which this version of bk_jax does not know")
    return KINDS[kind](**values)


def _values(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _made(x) if isinstance(x, dict) else x for name, x in fields.items()}
