"""Stands in for `compute-sanitizer` in a rehearsal: runs the program, prints lines of the same form.

The emulated device looks at every access itself, and fails the program's own tests. The file that
BK_STAND_IN_REPORT names is printed in place of "0 errors": tests show with it that findings are seen.
"""

import os
import subprocess
import sys
from pathlib import Path

NOTHING = {
    "memcheck": "ERROR SUMMARY: 0 errors",
    "initcheck": "ERROR SUMMARY: 0 errors",
    "synccheck": "ERROR SUMMARY: 0 errors",
    "racecheck": "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)",
}


def main(arguments: list[str]) -> int:
    options = {}
    while arguments and arguments[0].startswith("--"):
        options[arguments[0]] = arguments[1]
        arguments = arguments[2:]
    print("========= COMPUTE-SANITIZER", flush=True)
    code = subprocess.run(arguments, check=False).returncode
    if report := os.environ.get("BK_STAND_IN_REPORT"):
        print(Path(report).read_text(), end="")
        return int(options.get("--error-exitcode", "1"))
    print(f"========= {NOTHING[options['--tool']]}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
