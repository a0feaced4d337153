"""Routes requested by the user: patterns of parameter paths and the route they force."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from bk_jax.paths import matching
from bk_jax.planning.fastest import SUMMED
from bk_jax.planning.methods import ROUTES
from bk_jax.program.trace import Leaf

ALLOWED = {
    "dense": SUMMED,
    "conv": SUMMED,
    "lookup": ("sparse", "store"),
    "tied": ("ghost", "store"),
}


@dataclasses.dataclass(frozen=True)
class ForcedRoutes:
    """The requested route, by leaf number; and why, where it was not the user who asked."""

    routes: Mapping[int, str]
    paths: tuple[str, ...]
    reasons: Mapping[int, str] = dataclasses.field(default_factory=dict)

    def route(self, leaf: int) -> str | None:
        """The route that the user wants for a leaf, if any."""
        return self.routes.get(leaf)

    def why(self, leaf: int) -> str:
        """Why a leaf's route is forced."""
        return self.reasons.get(leaf, "asked for")

    def tapping(self, reasons: Mapping[int, str]) -> ForcedRoutes:
        """The same with further leaves on the route `"leaf"`; an error if another is asked for."""
        self.check(reasons)
        return ForcedRoutes({**self.routes, **dict.fromkeys(reasons, "leaf")}, self.paths, reasons)

    def for_block(self, leaves: Sequence[int], kind: str) -> str | None:
        """The route that the user wants for a weight made of `leaves`, if any."""
        asked = {route for leaf in leaves if (route := self.route(leaf))}
        if not asked:
            return None
        names = ", ".join(repr(self.paths[leaf]) for leaf in leaves)
        if len(asked) > 1:
            raise ValueError(
                f"parameters {names} are one weight but are asked to take {sorted(asked)}."
            )
        (route,) = asked
        if route not in ALLOWED[kind]:
            raise ValueError(
                f"parameter {names} is used as {kind}, which has no route {route!r}; it can take "
                f"{', '.join(ALLOWED[kind])} or leaf."
            )
        return route

    def check(self, tapped: Mapping[int, str]) -> None:
        """Raises where the parameter's uses do not allow the requested route."""
        for leaf, route in self.routes.items():
            if leaf in tapped and route != "leaf":
                raise ValueError(
                    f"parameter {self.paths[leaf]!r} cannot take the route {route!r}: it is "
                    f'{tapped[leaf]}. Its route is "leaf".'
                )


def force_routes(patterns: Mapping[str, str] | None, leaves: Sequence[Leaf]) -> ForcedRoutes:
    """Matches patterns (as in `fnmatch`, for example `"*/kernel"`) against parameter paths."""
    paths = tuple(leaf.path for leaf in leaves)
    routes: dict[int, str] = {}
    for pattern, route in (patterns or {}).items():
        if route not in ROUTES:
            raise ValueError(
                f"route {route!r} of pattern {pattern!r} is not one of {', '.join(ROUTES)}."
            )
        matched = matching(pattern, paths)
        if not matched:
            raise ValueError(
                f"route pattern {pattern!r} matches no parameter; "
                f"paths are {', '.join(paths) or 'none'}."
            )
        routes.update(dict.fromkeys(matched, route))
    return ForcedRoutes(routes, paths)
