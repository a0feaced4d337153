"""Concurrent executions: every custom call wants the pool that its own program runs on.

Each test is a process of its own, which a watchdog ends if it hangs.
"""

import functools
from concurrent import futures

import jax
import pytest
from support.every_call import programs
from support.process import run_python
from support.structure import custom_calls

from bk_jax import _native

# Threads run all programs at once, each in an order of its own; whoever gets other bits than the
# sequential run had says so.
STRESS = """
import faulthandler, os, threading
faulthandler.dump_traceback_later({timeout}, exit=True)
if {cores}:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:{cores}])
from support.every_call import digest, programs

made = programs()
expected = {{name: program.bits() for name, program in made.items()}}
failures = []

def work(index):
    names = sorted(made)
    for turn in range({runs}):
        name = names[(index + turn) % len(names)]
        if made[name].bits() != expected[name]:
            failures.append(name)

threads = [threading.Thread(target=work, args=(index,)) for index in range({threads})]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not failures, f"other bits than alone: {{sorted(set(failures))}}"
print(digest(expected))
"""


@pytest.mark.native
def test_the_programs_hold_every_custom_call():
    program = programs()["everything"]
    hlo = jax.jit(program.run).lower(*program.operands).compile().as_text()
    assert set(custom_calls(hlo)) == set(_native.TARGETS)


@pytest.mark.native
def test_no_deadlock_and_the_same_bits_for_any_number_of_threads():
    """A pool of one thread, of two, of four, and one core for all: 12 threads, 720 runs in each."""
    run = functools.partial(run_python, timeout=150)

    def stress(cores, pool):
        code = STRESS.format(runs=60, threads=12, timeout=120, cores=cores)
        return run(code, PJRT_NPROC=pool).stdout

    with futures.ThreadPoolExecutor(2) as workers:
        digests = list(workers.map(stress, [0, 0, 0, 1], ["1", "2", "4", "2"]))
    assert len(set(digests)) == 1, digests
    assert len(digests[0].strip()) == 64
