"""Random programs against `vmap` of `grad`, in float64.

A few here; `cd tests && python -m programs.campaign --count 5000` tries thousands.
"""

from hypothesis import given, settings
from support.oracle import Arguments, check_against_oracle, per_example

from programs.generator import Program, programs

RTOL = 1e-10


def check(program: Program) -> None:
    """The method that users get, and another one."""
    loss, params, batch = program.loss(), program.params(), program.batch()
    truth = per_example(loss, (params, batch), Arguments())
    for method in ("auto", program.options["method"]):
        options = {**program.options, "method": method}
        check_against_oracle(loss, params, batch, rtol=RTOL, truth=truth, **options)


@settings(max_examples=15, derandomize=True)
@given(program=programs())
def test_random_programs(x64, program):
    try:
        check(program)
    except Exception as error:
        error.add_note(f"{program.source}\n{program}")
        raise
