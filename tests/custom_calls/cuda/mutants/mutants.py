"""The emulated tests fail, for the right reason, when a kernel has a mistake.

The arguments come in threes: a program of tests with a mutant in it (mutants.bzl), the test that must
fail, and a word of its message.
"""

from __future__ import annotations

import os
import subprocess
import sys
import unittest

ARGUMENTS = sys.argv[1:]
# A mutant fails, as it should: without this it would write that as the result of this test.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "XML_OUTPUT_FILE"}


class MutantsTest(unittest.TestCase):
    def test_every_mutant_is_found(self) -> None:
        assert ARGUMENTS
        for program, test, word in zip(*(ARGUMENTS[k::3] for k in range(3)), strict=True):
            with self.subTest(program=program):
                command = [program, f"--gtest_filter={test}"]
                found = subprocess.run(
                    command, check=False, capture_output=True, text=True, env=ENVIRONMENT
                )
                assert found.returncode == 1, found.stdout + found.stderr
                assert f"[  FAILED  ] {test}" in found.stdout, found.stdout
                assert word in found.stdout, found.stdout


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
