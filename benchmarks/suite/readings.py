"""Numbers of results: what the tables, the figures and the list of losses are made of."""

from __future__ import annotations

import re
from typing import Any

from benchmarks.suite.store import Result

Step = dict[str, Any]
LABELS = {"plain": "not private", "noise": "auto, with noise"}
OURS = ("auto", "noise", "bk_jax")  # steps that are this package at its best
NAMES = {"batch": "B", "length": "T", "size": "image"}  # of sizes, for people
AGAINST = {"length": "T", "size": "size of images"}  # the same, where a title says what varies
SAID = {  # how a title says a size; {} is its value
    "depth": r"(?<!\d of ){} (of \d+ )?(blocks?|layers)\b",
    "width": r"(width|layers of) {}\b",
    "length": r"T = {}\b",
    "size": r"(images of|,) {}\b",
    "words": r"{} words\b",
}
VARIES = re.compile(r": [^:]+?(?=$|, scaled by )")  # the end of a figure's title


def label(step: str) -> str:
    """A step's name for people; method names are code."""
    return LABELS.get(step, f"`{step}`")


def batch_of(result: Result) -> int:
    return result["comparison"]["sizes"]["batch"]


def examples_per_second(result: Result, step: str) -> float | None:
    """Throughput; None for a step that was not run."""
    seconds = result["steps"].get(step, {}).get("seconds")
    return batch_of(result) / seconds if seconds else None


def over_plain(result: Result, step: str, key: str) -> float | None:
    """A number of a step over that of the plain one."""
    one, plain = (result["steps"].get(name, {}).get(key) for name in (step, "plain"))
    return one / plain if one is not None and plain else None


def timed(result: Result) -> dict[str, Step]:
    """The steps that ran."""
    return {name: step for name, step in result.get("steps", {}).items() if "ratio" in step}


def program_of(result: Result, step: str) -> str:
    """The step that stands for a program: methods that choose alike are the same one."""
    return result["steps"][step].get("same_as", step)


def noise_floor(result: Result) -> float:
    """How far an A/A comparison of this run is from 1: differences below mean nothing."""
    plain = timed(result)["plain"]
    return max(abs(plain["low"] - 1), abs(plain["high"] - 1))


def subject(result: Result) -> str:
    """What is measured; of a figure without what varies and what is drawn.

    >>> subject({"comparison": {"title": "MLP: throughput against T", "figure": "mlp"}})
    'MLP'
    """
    comparison = result["comparison"]
    title = comparison["title"] or comparison["model"]
    return VARIES.sub("", title) if comparison.get("figure") else title


def heading(result: Result, what: str) -> str:
    """The title of a figure, or of one of its pictures."""
    x = result["comparison"]["x"]
    return f"{subject(result)}: {what} against {AGAINST.get(x, x)}"


def unsaid(result: Result) -> dict[str, int]:
    """The sizes that are not in the title; what a figure varies is always among them."""
    comparison = result["comparison"]
    return {
        key: value
        for key, value in comparison["sizes"].items()
        if key == comparison.get("x") or not _says(subject(result), key, value)
    }


def _says(title: str, key: str, value: int) -> bool:
    number = "(1|one)" if value == 1 else str(value)
    return key in SAID and bool(re.search(rf"\b{SAID[key].format(number)}", title))


def title_of(result: Result) -> str:
    """The comparison's own title, with the sizes that are not in it."""
    sizes = [f"{NAMES.get(key, key)}={value}" for key, value in unsaid(result).items()]
    return ", ".join([subject(result), *sizes])


def peer_notes(result: Result) -> str:
    """Versions, and what all libraries must agree on."""
    losses, sums = (
        ", ".join(f"{label(name)} {value:.5f}" for name, value in result[key].items())
        for key in ("losses", "sums")
    )
    return f"Versions: {result['versions']}. Mean loss: {losses}. Norm of the clipped sum: {sums}."


def batches_within(result: Result) -> dict[float, dict[str, int]]:
    """Largest batches of the steps, by limit; what was not found in time is left out."""
    found: dict[float, dict[str, int]] = {}
    for number, limit in enumerate(result["comparison"].get("limits", ())):
        steps = {name: step.get("batches", []) for name, step in result["steps"].items()}
        found[limit] = {name: all_[number] for name, all_ in steps.items() if number < len(all_)}
    return found


def figures(results: list[Result]) -> dict[str, list[Result]]:
    """Results that vary one size, by figure, in the order of that size."""
    found: dict[str, list[Result]] = {}
    for result in results:
        if result["comparison"]["figure"] and "steps" in result:
            found.setdefault(result["comparison"]["figure"], []).append(result)
    return {name: sorted(rows, key=x_of) for name, rows in found.items()}


def x_of(result: Result) -> int:
    """The value of the size that varies."""
    comparison = result["comparison"]
    return comparison["sizes"][comparison["x"]]
