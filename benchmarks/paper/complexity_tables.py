"""The paper's tables of complexity, computed from the layer tables in configs/models.

    python -m benchmarks.paper.complexity_tables --table 8 --model gpt2
    python -m benchmarks.paper.complexity_tables --into docs/complexity.md

Prints Markdown: what the paper prints beside what its formulas give for the layers. Tables: 2 and 5
methods, 3 modules, 4 layer by layer, 7 parameters, 8 whole models, 10 norms of whole models (numbered
as the captions of the paper follow each other); `package` is the package's own cost model, `explain`
what it finds in traced models.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from benchmarks.paper.complexity import layers
from benchmarks.paper.complexity.formula_tables import table_3, table_5
from benchmarks.paper.complexity.from_explain import explain_table
from benchmarks.paper.complexity.number_tables import (
    package_table,
    table_4,
    table_7,
    table_8,
    table_10,
)

TABLES = {"2": table_5, "3": table_3, "4": table_4, "5": table_5, "7": table_7, "8": table_8,
          "10": table_10, "package": package_table, "explain": explain_table}  # fmt: skip
BLOCK = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end of table -->)", flags=re.DOTALL)


def updated(document: str) -> str:
    """A document with the tables between its markers made anew."""
    return BLOCK.sub(lambda m: f"{m[1]}\n{TABLES[m[2]](None).strip()}\n\n{m[3]}", document)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", choices=TABLES, help="only this one")
    parser.add_argument("--model", choices=layers.names(), metavar="NAME", help="only this model")
    parser.add_argument("--into", type=Path, help="a document whose tables are made anew")
    arguments = parser.parse_args()
    if arguments.into:
        arguments.into.write_text(updated(arguments.into.read_text()))
        return
    for name in [arguments.table] if arguments.table else [t for t in TABLES if t != "2"]:
        print(f"Table {name}\n\n{TABLES[name](arguments.model).strip()}\n")


if __name__ == "__main__":
    main()
