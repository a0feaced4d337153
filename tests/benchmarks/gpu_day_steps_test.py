"""Steps of the day with a GPU that say whether it works: what they read from tools and programs."""

import pytest
from support.gpu_day import MEMCHECK, program

from benchmarks.gpu.day import check, command, device_tests, prepare, sanitizer
from benchmarks.gpu.day.day import rehearsal


@pytest.fixture
def day(tmp_path):
    return rehearsal(tmp_path / "day")


# --- check ---

A100 = {
    "name": "NVIDIA A100-SXM4-40GB", "driver_version": "580.65.06", "compute_cap": "8.0",
    "memory.total": "40960", "memory.free": "40442", "clocks.sm": "1095", "clocks.max.sm": "1410",
    "clocks.mem": "1215", "power.limit": "400.00", "temperature.gpu": "31",
    "ecc.mode.current": "Enabled", "persistence_mode": None,
}  # fmt: skip


def test_what_nvidia_smi_prints():
    line = ", ".join(value or "[N/A]" for value in A100.values())
    assert check.parse_smi(f"{line}\n{line}\n") == [A100, A100]
    assert check.parse_smi("Failed to initialize NVML: Driver/library version mismatch") == []


@pytest.mark.parametrize(
    ("changes", "toolkit", "what", "is_fatal"),
    [
        ({}, (13, 0), None, False),
        ({"compute_cap": "7.5"}, (13, 0), "compute capability 7.5", True),
        ({"driver_version": "570.12"}, (13, 0), "driver 570.12 is older than R580", True),
        ({"driver_version": "570.12"}, (12, 8), None, False),
        ({}, (12, 4), "toolkit 12.4", True),
        ({}, None, "toolkit none", True),
        ({"memory.free": "20000"}, (13, 0), "20000 of 40960 MiB are free", False),
        ({"persistence_mode": "Disabled"}, (13, 0), "persistence mode is off", False),
    ],
)
def test_what_is_too_old_or_in_the_way(changes, toolkit, what, is_fatal):
    found = check.problems_of({**A100, **changes}, toolkit)
    if what is None:
        assert found == []
        return
    (problem,) = found
    assert what in problem.what
    assert problem.is_fatal == is_fatal
    assert problem.do


def test_no_gpu_is_a_problem():
    assert check.problems_of({}, (13, 0))[0].is_fatal


# --- tests on the device ---


def test_cases_are_counted_in_the_forms_of_both_runners():
    google = """<testsuites><testsuite>
        <testcase name="A" classname="S" status="run" result="completed"/>
        <testcase name="B" classname="S" status="run" result="completed"><failure/></testcase>
        <testcase name="C" classname="S" status="run" result="skipped"><skipped/></testcase>
        <testcase name="D" classname="S" status="notrun" result="suppressed"/>
        </testsuite></testsuites>"""
    pytests = '<testsuites><testsuite><testcase classname="m" name="t"/></testsuite></testsuites>'
    counts = device_tests.count_cases(google)
    assert counts == {"passed": 1, "failed": 1, "skipped": 1, "names": ["S.B"]}
    assert device_tests.count_cases(pytests)["passed"] == 1


def test_tests_that_all_skip_have_shown_nothing(day):
    xml = '<testsuites><testcase name="A" result="skipped"/></testsuites>'
    program(day, "kernel_tests", f"echo '{xml}' > {day.folder}/kernel_tests.xml")
    row = device_tests.kernel_tests(day)
    assert (row["ok"], row["passed"], row["skipped"]) == (False, 0, 1)


# --- compute-sanitizer ---

# As compute-sanitizer 2025 prints hazards.
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at void Kernel()+0x90
=========     and Read access at void Kernel()+0xd0 [120 hazards]
=========
========= Warning: Race reported between Write access at void Kernel()+0x10
=========     and Write access at void Kernel()+0x20 [4 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""


def test_findings_of_memcheck():
    found = sanitizer.parse(MEMCHECK)
    assert found["errors"] == 2
    assert list(found["kinds"]) == [
        "Invalid __global__ read of size 4 bytes",
        'Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure"',
    ]


def test_hazards_of_racecheck():
    found = sanitizer.parse(RACECHECK)
    assert (found["errors"], found["warnings"]) == (1, 1)
    assert (
        next(iter(found["kinds"]))
        == "Error: Race reported between Write access at void Kernel()..."
    )


def test_one_error_and_none():
    assert sanitizer.parse("========= ERROR SUMMARY: 1 error")["errors"] == 1
    assert sanitizer.parse("========= ERROR SUMMARY: 0 errors")["errors"] == 0


def test_a_tool_without_a_summary_did_not_finish(day):
    found = sanitizer.parse("========= COMPUTE-SANITIZER\nSegmentation fault")
    assert found["errors"] is None
    ran = command.Ran(139, "", "Segmentation fault", 1.0)
    assert sanitizer.problem_of(found, ran) == "it did not finish (Segmentation fault)"


def test_tests_that_fail_under_a_tool_are_a_problem():
    ran = command.Ran(1, "", "", 1.0)
    assert "exit code 1" in sanitizer.problem_of(sanitizer.parse(MEMCHECK[:28] + "========= ERROR "
                                                                 "SUMMARY: 0 errors"), ran)  # fmt: skip


@pytest.mark.parametrize("report", [None, MEMCHECK, RACECHECK])
def test_the_stand_in_speaks_as_the_tool_does(report, day, monkeypatch, tmp_path):
    program(day, "kernel_tests", "echo ran with $1")
    if report is not None:
        (tmp_path / "report.txt").write_text(report)
        monkeypatch.setenv("BK_STAND_IN_REPORT", str(tmp_path / "report.txt"))
    outcome = sanitizer.run(day)
    assert outcome.ok == (report is None)
    assert [row["tool"] for row in outcome.data["rows"]] == list(sanitizer.TOOLS)
    assert "ran with --gtest_filter=" in day.log("sanitizer").read_text()


# --- prepare ---


def test_programs_are_named_without_their_device(day, tmp_path):
    paths = [tmp_path / "bits_check_emulated", tmp_path / "emulated_test", tmp_path / "else.so"]
    assert prepare.named(day, paths) == {
        "bits_check": str(paths[0]), "kernel_tests": str(paths[1]),
    }  # fmt: skip


def test_a_program_that_is_not_built_says_what_to_type(day):
    with pytest.raises(FileNotFoundError, match=r"bits_check is not built: .* --again prepare"):
        day.program("bits_check")
