"""What each rule of docs/recipes.md is worth: one example, with one change at a time, three seeds.

python examples/recipes.py --config configs/recipes.toml
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import utility

EPSILON = 3.0


def changed(example: utility.Example, change: dict[str, Any]) -> utility.Example:
    """The example with other settings of `[run]` and `[model]`."""
    settings = dataclasses.replace(example.settings, **change.get("run", {}))

    def problem(seed: int, **others: Any) -> Any:
        return example.problem(seed, settings=settings, **change.get("model", {}) | others)

    return example._replace(settings=settings, problem=problem)


def measured(example: utility.Example, change: dict[str, Any], seeds: Sequence[int]) -> Any:
    """Accuracies at the end, and the mean processor time."""
    epsilon = change.get("epsilon", EPSILON)
    runs = [utility.run(changed(example, change), epsilon, seed) for seed in seeds]
    last = [next(iter(run.points[-1].metrics.values())) for run in runs]
    seconds = statistics.mean(run.cpu_seconds for run in runs)
    return {
        "name": change["name"],
        "epsilon": epsilon,
        "values": last,
        "seconds": round(seconds, 1),
    }


def main(argv: Sequence[str] | None = None) -> list[Any]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=Path("configs", "recipes.toml"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--results", type=Path, default=Path("examples", "results"))
    args = parser.parse_args(argv)
    table = tomllib.loads(args.config.read_text())
    example = utility.read_example(Path(table["example"]))
    path = args.results / f"{args.config.stem}.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    done = {row["name"] for row in rows}
    for change in table["change"]:
        if change["name"] not in done:
            rows.append(measured(example, change, args.seeds))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    for row in rows:
        each = ", ".join(f"{value:.3f}" for value in row["values"])
        mean = statistics.mean(row["values"])
        print(f"| {row['name']} | {row['epsilon']:g} | {mean:.3f} | {each} | {row['seconds']} s |")
    return rows


if __name__ == "__main__":
    main()
