"""What is compared: comparisons read from configs/benchmarks, as data that a process can be given.

    [[comparison]]
    name = "gpt2"
    kind = "time"
    model = "gpt2"
    sizes = { batch = 4, length = 100, depth = 2 }
    steps = "all"
    vary = { length = [100, 200] }      # optional: one comparison for each value, a figure of all

| kind | does |
|---|---|
| `time` | compiles every step and times it between runs of the plain one |
| `memory` | compiles only |
| `counts` | compiles only, and counts what is in the programs ([counts.py](counts.py)) |
| `largest` | the largest batch of every step that fits each of `limits` (bytes); compiles only |
| `jax`, `torch` | times another library's steps in its own environment |

Steps that are named in `compiled` too are not run: of a step that would take the night, memory is known
all the same. After `minutes` a comparison is stopped, with what it has found by then.
"""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from bk_jax.overhead.timing import Timing

KINDS = ("time", "memory", "counts", "largest", "jax", "torch")
CONFIGS = Path(__file__).resolve().parents[2] / "configs" / "benchmarks"
SCALED = ("batch", "length", "depth", "width")  # sizes that --scale multiplies
TILE = 32  # images are this multiple
TUPLES = ("steps", "limits", "compiled")  # lists in JSON


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One model of one size, and the steps that are compared on it: one process, one result."""

    name: str
    kind: str
    model: str
    sizes: dict[str, int]
    steps: tuple[str, ...]
    title: str = ""
    budget: float = 10.0  # seconds of timing; compilation comes on top
    least: int = 4  # turns of a slow step
    figure: str = ""  # comparisons that vary one size
    x: str = ""  # that size
    limits: tuple[float, ...] = ()  # bytes, of `largest`
    compiled: tuple[str, ...] = ()  # those of the steps that are not run
    minutes: float = 60.0  # that it may take, compilation and all

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        data = dataclasses.asdict(self)
        return {**data, **{name: list(data[name]) for name in TUPLES}}


def from_dict(data: dict[str, Any]) -> Comparison:
    """The way back."""
    return Comparison(**{**data, **{name: tuple(data.get(name, ())) for name in TUPLES}})


def as_result(timing: Timing) -> dict[str, Any]:
    """What a result keeps of a timing; each pair is a turn."""
    names = ("seconds", "ratio", "low", "high")
    return {**{name: getattr(timing, name) for name in names}, "turns": timing.pairs}


def read(profile: str) -> list[Comparison]:
    """The comparisons of configs/benchmarks/<profile>.toml."""
    path = CONFIGS / f"{profile}.toml"
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in CONFIGS.glob("*.toml")))
        raise ValueError(f"there is no profile {profile!r}; profiles are {known}.")
    data = tomllib.loads(path.read_text())
    found = [one for row in data["comparison"] for one in _expand(row, data.get("steps", {}))]
    names = [one.name for one in found]
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        raise ValueError(f"{path.name} has more than one comparison {', '.join(sorted(doubled))}.")
    return found


def _expand(row: dict[str, Any], lists: dict[str, list[str]]) -> list[Comparison]:
    """One comparison, or one for each value of what varies."""
    row = dict(row)
    vary = row.pop("vary", None)
    if row["kind"] not in KINDS:
        raise ValueError(
            f"{row['name']} has the kind {row['kind']!r}; kinds are {', '.join(KINDS)}."
        )
    for key in ("steps", "compiled"):
        given = row.get(key, ())
        row[key] = tuple(lists[given] if isinstance(given, str) else given)
    row["limits"] = tuple(row.get("limits", ()))
    unknown = set(row["compiled"]) - set(row["steps"])
    if unknown:
        raise ValueError(
            f"{row['name']} compiles {', '.join(sorted(unknown))}, not among its steps."
        )
    if vary is None:
        return [Comparison(**row)]
    [(size, values)] = vary.items()
    return [_varied(row, size, value) for value in values]


def _varied(row: dict[str, Any], size: str, value: int) -> Comparison:
    sizes = {**row["sizes"], size: value}
    name = f"{row['name']}-{size}-{value}"
    return Comparison(**{**row, "name": name, "sizes": sizes, "figure": row["name"], "x": size})


def scaled(one: Comparison, scale: float) -> Comparison:
    """The same with smaller sizes; name, title and figure say so, it is another result."""
    if scale == 1.0:
        return one
    sizes = {key: _scale(key, value, scale) for key, value in one.sizes.items()}
    return dataclasses.replace(
        one,
        name=f"{one.name}-scale-{scale:g}",
        title=f"{one.title or one.model}, scaled by {scale:g}",
        figure=f"{one.figure}-scale-{scale:g}" if one.figure else "",
        sizes=sizes,
        limits=tuple(limit * scale for limit in one.limits),
    )


def _scale(key: str, value: int, scale: float) -> int:
    if key == "size":
        return max(TILE, round(value * scale / TILE) * TILE)
    return max(1, round(value * scale)) if key in SCALED else value
