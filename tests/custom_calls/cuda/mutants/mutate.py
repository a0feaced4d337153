"""Writes a source with one mistake: `mutate.py source mutant right wrong`.

The text `right` must stand in the source exactly once, so that a mutant cannot become the kernel
itself when that is rewritten.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    source, mutant, right, wrong = sys.argv[1:]
    text = Path(source).read_text()
    if text.count(right) != 1:
        sys.exit(
            f"{source}: expected once, found {text.count(right)} times: {right!r}; see mutants.bzl"
        )
    Path(mutant).write_text(text.replace(right, wrong))


if __name__ == "__main__":
    main()
