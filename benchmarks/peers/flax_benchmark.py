"""What privacy costs on Hugging Face's Flax GPT2, and by whose code.

    make bench-peers                # in the report, whole; or alone, in the environment that it made:
    PYTHONPATH=python .venv-peers-jax/bin/python -m benchmarks.peers.flax_benchmark
    ... --sizes 8x100 --depth 2 --words 301 --budget 20

Time over the step that is not private, as the report has it: medians of ratios of neighbours, with
intervals. The first row compares that step with itself: differences of its size mean nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import re

from benchmarks.ops import machine
from benchmarks.peers import jax_worker
from benchmarks.suite.comparisons import Comparison
from benchmarks.suite.readings import Result, peer_notes, title_of
from benchmarks.suite.tables import step_table

STEPS = ("bk_jax", "bk_jax, loop", "jax_privacy, loop")


def steps_here() -> tuple[str, ...]:
    """The steps whose libraries are installed; says which are not."""
    if importlib.util.find_spec("jax_privacy"):
        return STEPS
    print("jax_privacy is not installed here; tools/peers.py makes an environment that has it.")
    return tuple(name for name in STEPS if not name.startswith("jax_privacy"))


def measure(one: Comparison) -> Result:
    return {"comparison": one.as_dict(), **jax_worker.measure(one)}


def describe(result: Result) -> str:
    return f"\n{title_of(result)}\n\n{step_table(result)}\n\n{peer_notes(result)}"


def batch_and_length(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"expected examples x tokens, such as 8x100, got {text!r}."
        )
    return int(found[1]), int(found[2])


def parse(line: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sizes", nargs="+", type=batch_and_length, default=[(8, 100), (2, 1000)],
        help="examples x tokens of a batch; by default 8x100 and 2x1000",
    )  # fmt: skip
    parser.add_argument("--depth", type=int, default=12, help="blocks")
    parser.add_argument("--words", type=int, default=50257, help="tokens of the vocabulary")
    parser.add_argument("--model", default="flax_gpt2", help="or one of benchmarks/steps")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of timing for a size")
    parser.add_argument("--least", type=int, default=4, help="turns of a slow step")
    return parser.parse_args(line)


def main(line: list[str] | None = None) -> None:
    arguments = parse(line)
    print(machine.describe())
    steps = steps_here()
    for batch, length in arguments.sizes:
        sizes = {"batch": batch, "length": length}
        sizes |= {"depth": arguments.depth, "words": arguments.words}
        one = Comparison(
            "flax", "jax", arguments.model, sizes, steps,
            budget=arguments.budget, least=arguments.least,
        )  # fmt: skip
        print(describe(measure(one)), flush=True)


if __name__ == "__main__":
    main()
