"""Neighbouring relations: which two data sets must look alike, by name.

One of two neighbours has a record more (`add_or_remove_one`), another record in its place
(`replace_one`), or an empty one in its place (`replace_special`). The names are those of
`dp_accounting.NeighboringRelation`, which is taken as well and need not be installed.
"""

from __future__ import annotations

import enum
from typing import Any

# How many clipped gradients a sum changes by between neighbours.
CHANGED = {"add_or_remove_one": 1, "replace_one": 2, "replace_special": 1}


def relation_name(relation: Any, argument: str = "neighboring_relation") -> str:
    """The name of a relation in lower case; raises for everything that is none.

    >>> relation_name("REPLACE_ONE")
    'replace_one'
    """
    given = relation.name if _is_dp_accountings(relation) else relation
    if isinstance(given, str) and given.lower() in CHANGED:
        return given.lower()
    raise ValueError(
        f"{argument} must be one of {', '.join(map(repr, CHANGED))} in any case, or a "
        f"dp_accounting.NeighboringRelation; got {relation!r}."
    )


def _is_dp_accountings(relation: Any) -> bool:
    return isinstance(relation, enum.Enum) and type(relation).__name__ == "NeighboringRelation"
