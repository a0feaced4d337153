"""Tables of the static cycle model, all computed, none measured.

    python -m benchmarks.gpu.cycles caps                          # of our kernels, before and after
    python -m benchmarks.gpu.cycles ratios                        # of steps of whole models
    python -m benchmarks.gpu.cycles parts --gpu H100              # of those, in milliseconds
    python -m benchmarks.gpu.cycles causes                        # of those, beside the goals
    python -m benchmarks.gpu.cycles clusters                      # and as they are not: H100
    python -m benchmarks.gpu.cycles shape 16 1024 768 3072        # of one layer: B T d p
    python -m benchmarks.gpu.cycles code FILE                     # main loops of an archive or a cubin
    python -m benchmarks.gpu.cycles record bazel-bin/custom_calls/cuda    # reads what nvcc made
    python -m benchmarks.gpu.cycles limits bazel-bin/custom_calls/cuda    # the table of limits.py
    python -m benchmarks.gpu.cycles document                      # tables and plot of its pages
    python -m benchmarks.gpu.cycles predict                       # out/gpu-cycles/predicted.json

`code`, `record` and `limits` need cuobjdump (package nvidia-cuda-cuobjdump).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.gpu.cycles import (
    compiled,
    document,
    kernels,
    limits,
    predict,
    tables,
    tables_of_steps,
)

ACTIONS = ("shape", "code", "record", "limits", "document", "predict")
NAMES = (*ACTIONS, *document.TABLES)


def main() -> None:
    """Prints what the first argument names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=NAMES)
    parser.add_argument("values", nargs="*", help="B T d p, or a file or folder")
    parser.add_argument("--gpu", default="A100", choices=("A100", "H100", "B200"))
    parser.add_argument("--label", default="after", choices=("before", "after"))
    arguments = parser.parse_args()
    values = arguments.values
    if arguments.table == "shape":
        if len(values) != 4:
            parser.error(f"shape needs four sizes, B T d p, got {len(values)}")
        b, t, d, p = map(int, values)
        print(tables.shapes([(b, t, d, p)]))
    elif arguments.table in ("code", "record", "limits") and len(values) != 1:
        parser.error(f"{arguments.table} needs one file or folder, got {len(values)}")
    elif arguments.table == "code":
        print(tables.machine_code(Path(values[0])))
    elif arguments.table == "record":
        kernels.record(arguments.label, Path(values[0]))
    elif arguments.table == "limits":
        print(limits.as_text(limits.measured(compiled.in_folder(Path(values[0])))))
    elif arguments.table == "predict":
        print(predict.write())
    elif arguments.table == "document":
        document.write(document.DOCS)
    elif arguments.table == "parts":
        print(tables_of_steps.parts(arguments.gpu, arguments.label))
    else:
        print(document.TABLES[arguments.table]())


if __name__ == "__main__":
    main()
