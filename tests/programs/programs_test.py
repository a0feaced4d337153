"""Random programs against `vmap` of `grad`, in float64.

`BK_JAX_PROGRAMS=5000 pytest tests/programs` tries that many, other ones in each run.
"""

import os
import pathlib

from hypothesis import given, settings
from support.oracle import Arguments, check_against_oracle, per_example

from programs.generator import Program, programs

COUNT = int(os.environ.get("BK_JAX_PROGRAMS", "0"))
LOG = os.environ.get("BK_JAX_PROGRAMS_LOG")  # the last program, should it take the process with it
RTOL = 1e-10


def check(program: Program) -> None:
    """The method that users get, and another one."""
    loss, params, batch = program.loss(), program.params(), program.batch()
    truth = per_example(loss, (params, batch), Arguments())
    for method in ("auto", program.options["method"]):
        options = {**program.options, "method": method}
        check_against_oracle(loss, params, batch, rtol=RTOL, truth=truth, **options)


@settings(max_examples=COUNT or 15, derandomize=not COUNT)
@given(program=programs())
def test_random_programs(x64, program):
    if LOG:
        pathlib.Path(LOG).write_text(f"{program}\n{program.source}\n")
    try:
        check(program)
    except Exception as error:
        error.add_note(f"{program.source}\n{program}")
        raise
