"""The Python tools behind make: counting tests, placing the native module, clang-tidy flags."""

import os
import subprocess
from pathlib import Path

import pytest

import bazel
import build_native
import environments
import lint_cpp
import peers
import run_tests
from run_tests import Count

GOOGLE_TEST = """<testsuites><testsuite name="Clip">
  <testcase name="Half" status="run" result="completed"/>
  <testcase name="Wrong" status="run" result="completed"><failure message="0 != 1"/></testcase>
  <testcase name="Later" status="run" result="skipped"><skipped/></testcase>
  <testcase name="DISABLED_Off" status="notrun" result="suppressed"/>
</testsuite></testsuites>"""
PYTEST = """<testsuites><testsuite name="pytest">
  <testcase name="a"/><testcase name="b"><error message="fixture"/></testcase>
  <testcase name="c"><skipped type="pytest.skip"/></testcase>
</testsuite></testsuites>"""
CRASHED = """<testsuites><testsuite name="x_test" tests="1" errors="1">
  <testcase name="x_test" status="run"><error message="exited with error code 139"/></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("log", "expected"),
    [(GOOGLE_TEST, Count(1, 1, 2)), (PYTEST, Count(1, 1, 1)), (CRASHED, Count(0, 1, 0))],
)
def test_cases_are_counted(tmp_path: Path, log: str, expected: Count):
    path = tmp_path / "test.xml"
    path.write_text(log)
    assert run_tests.count_cases(path) == expected


def test_counts_add():
    assert Count(1, 2, 3) + Count(10, 20, 30) == Count(11, 22, 33)


def test_build_events_tell_outputs_logs_and_broken_targets():
    events = [
        {"id": {"started": {}}},
        {"id": {"namedSet": {}}, "namedSetOfFiles": {"files": [{"uri": "file:///o/a%2Bb.so"}]}},
        {
            "id": {"testResult": {"label": "//tests:x_test"}},
            "testResult": {
                "testActionOutput": [
                    {"name": "test.log", "uri": "file:///o/test.log"},
                    {"name": "test.xml", "uri": "file:///o/test.xml"},
                ]
            },
        },
        {"id": {"targetCompleted": {"label": "//a:good"}}, "completed": {"success": True}},
        {"id": {"targetCompleted": {"label": "//a:bad"}}, "aborted": {}},
        {
            "id": {"targetCompleted": {"label": "//a:for_another_platform"}},
            "aborted": {"reason": "SKIPPED"},
        },
    ]
    result = bazel.Run(exit_code=1, events=events)
    assert list(result.outputs()) == [Path("/o/a+b.so")]
    assert list(result.test_logs()) == [("//tests:x_test", Path("/o/test.xml"))]
    assert result.broken() == ["//a:bad"]


def test_bazel_that_is_missing_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bazel.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match=r"(?s)Bazel is not installed.*BK_JAX_NO_NATIVE=1"):
        bazel.run("build")


def make_nvcc(folder: Path) -> Path:
    program = folder / "bin" / "nvcc"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    return program


def test_cuda_is_built_where_nvcc_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """By the same rules as third_party/cuda.bzl."""
    monkeypatch.delenv("BK_JAX_TEST_CUDA", raising=False)
    monkeypatch.delenv("BK_JAX_CUDA_PATH", raising=False)
    on_path, named = make_nvcc(tmp_path / "on_path"), make_nvcc(tmp_path / "named")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert bazel.nvcc() == on_path
    assert bazel.cuda_flags() == ["--config=cuda"]
    monkeypatch.setenv("BK_JAX_CUDA_PATH", str(tmp_path / "named"))
    assert bazel.nvcc() == named
    monkeypatch.setenv("BK_JAX_CUDA_PATH", str(tmp_path))
    assert bazel.nvcc() is None
    assert bazel.cuda_flags() == []


def test_one_line_says_what_is_left_out_without_cuda(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delenv("BK_JAX_TEST_CUDA", raising=False)
    monkeypatch.setenv("BK_JAX_CUDA_PATH", str(tmp_path))
    run_tests.say_what_is_left_out()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("no CUDA toolkit (nvcc on PATH")
    assert "left out: kernels compiled by nvcc" in line
    assert run_tests.run_cuda() == Count(failed=1)
    monkeypatch.setenv("BK_JAX_TEST_CUDA", "0")
    run_tests.say_what_is_left_out()
    assert capsys.readouterr().out.startswith("BK_JAX_TEST_CUDA=0; left out")
    make_nvcc(tmp_path)
    monkeypatch.delenv("BK_JAX_TEST_CUDA")
    run_tests.say_what_is_left_out()
    assert capsys.readouterr().out == ""


def test_programs_for_gpus_are_left_out_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def nothing(venv: Path, lock: Path) -> None:
        raise subprocess.CalledProcessError(1, "pip")

    monkeypatch.setattr(environments, "make_environment", nothing)
    monkeypatch.setenv("BK_JAX_TEST_CUDA", "0")
    assert run_tests.run_gpu() == Count(skipped=1)
    needed = "left out: programs compiled for GPUs, and gates on them"
    assert capsys.readouterr().out.splitlines()[1] == f"BK_JAX_TEST_CUDA=0; {needed}"
    monkeypatch.setattr(bazel, "cuda_left_out", lambda: "")
    assert run_tests.run_gpu() == Count(skipped=1)
    (_, line) = capsys.readouterr().out.splitlines()
    assert line.startswith("the packages of requirements-gpu.lock cannot be had (Command 'pip'")
    assert line.endswith(needed)


def test_an_environment_is_made_again_only_when_its_lock_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    commands: list[list[str]] = []

    def run(command: list[str], check: bool) -> None:
        commands.append(command)
        (tmp_path / "env").mkdir(exist_ok=True)

    monkeypatch.setattr(environments.subprocess, "run", run)
    lock = tmp_path / "some.lock"
    lock.write_text("jax==1\n")
    for _ in range(2):
        environments.make_environment(tmp_path / "env", lock)
    assert [command[2] for command in commands] == ["venv", "pip"]
    assert commands[1][-2:] == ["--requirement", str(lock)]
    lock.write_text("jax==2\n")
    environments.make_environment(tmp_path / "env", lock)
    assert len(commands) == 4


def test_native_module_is_replaced_only_when_it_changed(tmp_path: Path):
    built, package = tmp_path / "_cpu.so", tmp_path / "package"
    built.write_bytes(b"one")
    assert build_native.place(built, package)
    placed = package / "_cpu.so"
    before = placed.stat().st_ino
    assert not build_native.place(built, package)
    assert placed.stat().st_ino == before
    built.write_bytes(b"two")
    assert build_native.place(built, package)
    # Another file under the same name: a process that has the first one mapped keeps it.
    assert placed.stat().st_ino != before
    assert placed.read_bytes() == b"two"
    assert os.access(placed, os.X_OK)
    assert [path.name for path in package.iterdir()] == ["_cpu.so"]


def test_clang_tidy_gets_the_compiler_flags_without_outputs():
    command = (
        "gcc -MD -MF x.d -fno-canonical-system-headers -std=c++17 -isystem external/gtest -I. "
    )
    command += "-Iexternal/absl -iquote bazel-out/k8/bin -c custom_calls/x.cc -o x.o"
    flags = lint_cpp.clang_flags(command.split(), "/base")
    expected = "-std=c++17 -isystem /base/external/gtest -I. -I/base/external/absl "
    expected += "-iquote bazel-out/k8/bin"
    assert flags == expected.split()


def test_checkouts_share_a_cache_only_where_one_is_named(monkeypatch, tmp_path: Path):
    monkeypatch.delenv("BK_JAX_CACHE", raising=False)
    assert (bazel.cache(), bazel.cache_flags("test")) == (None, [])
    monkeypatch.setenv("BK_JAX_CACHE", str(tmp_path))
    assert bazel.cache_flags("build") == [f"--disk_cache={tmp_path}/bazel"]
    assert bazel.cache_flags("test") == [f"--disk_cache={tmp_path}/bazel", "--nocache_test_results"]


def test_a_clean_file_is_known_in_another_checkout_but_not_with_other_flags():
    source = "custom_calls/certified.h"

    def name(*flags: str) -> str:
        return lint_cpp.fingerprint(lint_cpp.Command(source, ("clang++", *flags)), b"headers")

    here, there = "-I/a/1/external/gtest", "-I/b/2/external/gtest"
    assert name(here, "-DX=1") == name(there, "-DX=1")
    assert len({name(here), name(here, "-DX=1"), name("-I/a/1/external/other")}) == 3


def test_ci_runs_the_tests_beside_other_libraries_but_for_slow_ones():
    """So the lines of every page about another library are run by CI."""
    assert "peers-quick" in (environments.ROOT / ".ci" / "run").read_text()
    assert set(peers.TESTS) <= set(peers.QUICK)
    for folder in peers.TESTS:
        assert list((environments.ROOT / folder).glob("*_test.py"))
