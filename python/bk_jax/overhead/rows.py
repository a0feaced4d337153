"""Rows: time and prediction of two compiled steps, put down to the parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bk_jax.hlo.loading import load
from bk_jax.overhead.flow import HOLDING
from bk_jax.overhead.owners import CLIPPING, SHARED, executed, find_owners
from bk_jax.overhead.prediction import Rates, Work, fit_rates, rates_by_flops, work_of
from bk_jax.overhead.profile import Profile
from bk_jax.overhead.report import OUTSIDE, Row
from bk_jax.planning.explain import Explanation

Charged = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled step: its instructions, what they do, and for which of the parameters `paths`."""

    paths: tuple[str, ...]
    instructions: frozenset[str]
    holding: frozenset[str]
    work: Mapping[str, Work]
    owners: Mapping[str, tuple[str, ...]]

    def charge(self, amounts: Mapping[str, float]) -> Charged:
        """Adds up amounts of instructions by owner; those who share one share it equally."""
        out: Charged = {}
        for instruction, amount in amounts.items():
            owners = self.owners[instruction] if instruction else (OUTSIDE,)
            for owner in owners:
                out[owner] = out.get(owner, 0.0) + amount / len(owners)
        return out

    def predict(self, rates: Rates) -> Charged:
        """Predicted seconds by owner."""
        return self.charge({name: rates.seconds(work) for name, work in self.work.items()})


def read_program(compiled: Any, paths: Sequence[str]) -> Program:
    """Reads a compiled step whose last results are the gradients of the parameters `paths`."""
    (module, *_) = load(compiled)
    instructions = list(executed(module))
    return Program(
        paths=tuple(paths),
        instructions=frozenset(i.name for i in instructions),
        holding=frozenset(i.name for i in instructions if i.opcode in HOLDING),
        work=work_of(module),
        owners=find_owners(module, paths),
    )


def make_rows(
    programs: Mapping[str, Program],
    explanation: Explanation,
    profiles: Mapping[str, Profile] | None,
) -> tuple[Row, ...]:
    """A row for each parameter, then those of shared work and of time outside of operations."""
    plain, private = programs["plain"], programs["private"]
    if profiles:
        rates = fit_rates(plain.work, profiles["plain"].operations)
    else:
        rates = rates_by_flops(plain.work)
    predicted = [program.predict(rates) for program in (plain, private)]
    total = sum(predicted[0].values())
    measured = _measure(programs, profiles)
    routes, flops = explanation.routes(), _extra_flops(explanation)
    names = [*((path, "parameter") for path in plain.paths), (SHARED, "shared")]
    names += [(CLIPPING, "shared"), (OUTSIDE, "outside")]
    rows = []
    for name, kind in names:
        before, after = (charged.get(name, 0.0) for charged in predicted)
        seconds = [charged.get(name, 0.0) for charged in measured]
        whole = profiles["plain"].seconds if profiles else 1.0
        rows.append(
            Row(
                name=name,
                kind=kind,
                route=routes.get(name, "") if kind == "parameter" else "",
                extra_flops=flops.get(name, 0) if kind == "parameter" else 0,
                predicted=(after - before) / total if total else 0.0,
                plain=seconds[0] if profiles else None,
                private=seconds[1] if profiles else None,
                measured=(seconds[1] - seconds[0]) / whole if profiles else None,
            )
        )
    return tuple(rows)


def _measure(
    programs: Mapping[str, Program], profiles: Mapping[str, Profile] | None
) -> list[Charged]:
    if not profiles:
        return [{}, {}]
    return [programs[name].charge(profiles[name].operations) for name in ("plain", "private")]


def _extra_flops(explanation: Explanation) -> dict[str, int]:
    """Of each parameter by the route that it takes; a parameter may have several uses."""
    out: dict[str, int] = {}
    for row in explanation.rows:
        out[row.path] = out.get(row.path, 0) + row.extra_flops.get(row.route, 0)
    return out
