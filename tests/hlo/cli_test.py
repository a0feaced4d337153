"""The command, and what it prints: tables, JSON, diffs and graphs."""

import json
import os
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from support.process import PACKAGE

from bk_jax.hlo import compare, load, neighbourhood, summarize, to_dot, to_svg
from bk_jax.hlo.cli import main
from hlo import programs

LOOP = """HloModule loop
body { p = (s32[], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[4,4] get-tuple-element(p), index=1
  y = f32[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (s32[], f32[4,4]) tuple(j, y) }
condition { p = (s32[], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(7)
  ROOT less = pred[] compare(i, n), direction=LT }
ENTRY e {
  a = f32[4,4] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[4,4]) tuple(zero, a)
  loop = (s32[], f32[4,4]) while(start), condition=condition, body=body, CONFIG
  out = f32[4,4] get-tuple-element(loop), index=1
  ROOT moved = f32[4,4] transpose(out), dimensions={1,0}
}
"""
TRIPS = 'backend_config={"known_trip_count":{"n":"7"}}'


@pytest.fixture
def loop(tmp_path):
    path = tmp_path / "loop.txt"
    path.write_text(LOOP.replace("CONFIG", TRIPS))
    return path


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    return code, capsys.readouterr()


def test_a_loop_counts_as_often_as_it_runs(loop):
    costs = summarize(load(loop)[0]).costs
    assert costs["dot"].flops == 7 * 2 * 4**3
    assert costs["dot"].nbytes == 7 * 3 * 64
    assert costs["movement"].nbytes == 2 * 64
    loop.write_text(LOOP.replace(", CONFIG", ""))
    assert summarize(load(loop)[0]).costs["dot"].flops == 2 * 4**3


def test_summary(capsys, loop):
    code, out = run(capsys, "summary", loop)
    assert code == 0
    assert "loop (after optimizations): 17 instructions" in out.out
    code, out = run(capsys, "summary", loop, "--json")
    (data,) = json.loads(out.out)
    assert data["op_counts"]["get-tuple-element"] == 4
    assert data["costs"]["dot"]["count"] == 7


SMALL = "HloModule NAME\nENTRY e { a = f32[4] parameter(0)\n ROOT b = f32[4] sine(a) }\n"


@pytest.fixture
def folder(tmp_path):
    """The loop, which costs most, and two small modules."""
    texts = {"loop": LOOP.replace("CONFIG", TRIPS)}
    texts |= {name: SMALL.replace("NAME", name) for name in ("first", "second")}
    for number, (name, text) in enumerate(texts.items()):
        (tmp_path / f"module_{number:04}.{name}.cpu_after_optimizations.txt").write_text(text)
    return tmp_path


def test_summary_of_a_folder_is_the_train_step_and_a_line_for_each_other_module(capsys, folder):
    whole = run(capsys, "summary", folder, "--all")[1].out
    step, others = run(capsys, "summary", folder)[1].out.split("\n\n")
    assert whole.startswith(step)
    assert others.splitlines() == [
        "2 other modules (--all shows them in full):",
        "  first (after optimizations): 2 instructions, 4 flop, 32 B moved",
        "  second (after optimizations): 2 instructions, 4 flop, 32 B moved",
    ]
    assert whole.count("operations:") == 3
    named = run(capsys, "summary", folder, "--module", "*s*")[1].out
    assert named.count("operations:") == 2
    assert len(json.loads(run(capsys, "summary", folder, "--json")[1].out)) == 3


def test_one_other_module_is_one(capsys, folder):
    next(folder.glob("*second*")).unlink()
    assert "\n1 other module (--all shows it in full):\n" in run(capsys, "summary", folder)[1].out


def test_the_shape_of_a_wide_tuple_is_cut(capsys, tmp_path):
    wide = ", ".join(["f32[4,4]"] * 99)
    values = ", ".join(["p"] * 99)
    path = tmp_path / "wide.txt"
    path.write_text(
        f"HloModule wide\nf {{ p = f32[4,4] parameter(0)\n ROOT t = ({wide}) tuple({values}) }}\n"
        f"ENTRY e {{ p = f32[4,4] parameter(0)\n ROOT c = ({wide}) call(p), to_apply=f }}\n"
    )
    _, out = run(capsys, "summary", path)
    assert "(f32[4,4], f32[4,4]" in out.out
    assert max(map(len, out.out.splitlines())) < 120
    (data,) = json.loads(run(capsys, "summary", path, "--json")[1].out)
    assert data["largest_buffers"][0][1] == f"({wide})"


@pytest.mark.native
def test_calls(capsys, compiled):
    folder = compiled("scan").folder
    code, out = run(capsys, "calls", folder)
    assert code == 0
    assert "bk_clipped_gemm  layers" in out.out
    assert 'clipping="abadi"' in out.out
    _, out = run(capsys, "calls", folder, "--json")
    (data,) = json.loads(out.out)
    norm = next(c for c in data["calls"] if c["target"] == "bk_ghost_norm")
    assert norm["operands"] == ["f32[4,5,5,24]", "f32[4,5,5,24]"]
    assert all(n["nbytes"] > 0 for n in norm["neighbours"])


def test_a_program_without_calls(capsys, loop):
    assert run(capsys, "calls", loop)[1].out == "loop: no bk call\n"


@pytest.mark.native
def test_lint_gates(capsys, compiled, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text(programs.step("gpt2").explanation.to_json())
    code, out = run(capsys, "lint", compiled("gpt2").folder, "--explain", plan)
    assert (code, out.out) == (0, "jit_train: nothing found\n")
    broken = compiled("gpt2", (("up", "store"),)).folder
    code, out = run(capsys, "lint", broken)
    assert code == 1
    assert "for up makes f32[4,1,24,48]" in out.out
    assert run(capsys, "lint", broken, "--gradient-limit", 1 << 20)[0] == 0
    assert run(capsys, "lint", broken, "--only", "layout-copy")[0] == 0
    for option in (["--json"], ["--format", "sarif"]):
        code, out = run(capsys, "lint", broken, *option)
        assert code == 1
        assert "instantiated" in json.dumps(json.loads(out.out))
    code, out = run(capsys, "lint", broken, "--format", "junit")
    assert ElementTree.fromstring(out.out).find("testsuite").get("failures") == "1"


def test_diff(capsys, loop, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text(LOOP.replace(", CONFIG", ""))
    code, out = run(capsys, "diff", loop, other)
    assert code == 0
    assert "dot" in out.out
    assert "0.14x" in out.out
    _, out = run(capsys, "diff", loop, other, "--json")
    changes = {(c["group"], c["name"]): c for c in json.loads(out.out)["changes"]}
    assert changes["flop", "dot"]["before"] == 7 * changes["flop", "dot"]["after"]
    assert "no difference" in run(capsys, "diff", loop, loop)[1].out


def test_diff_of_ordinary_and_private():
    before = load(programs.step("gpt2", private=False).lowered)[0]
    after = load(programs.step("gpt2", platform="cuda").lowered)[0]
    changes = {(c.group, c.name): (c.before, c.after) for c in compare(before, after).changes}
    assert changes["total", "instructions"][0] < changes["total", "instructions"][1]


def test_graph(capsys, loop, tmp_path):
    code, out = run(capsys, "graph", loop, "loop", "--depth", 1)
    assert code == 0
    assert '"start" -> "loop"' in out.out
    assert '"loop" -> "out"' in out.out
    assert '"moved"' not in out.out
    svg = tmp_path / "loop.svg"
    assert run(capsys, "graph", loop, "loop", "--svg", svg)[1].out == ""
    root = ElementTree.parse(svg).getroot()
    assert len(root.findall(".//{*}g[@class='node']")) == 6
    assert len(root.findall(".//{*}path[@class='edge']")) == 5


def test_every_instruction_of_a_graph_stands_below_its_operands():
    (module,) = load(programs.step("gpt2", private=False).lowered)
    dot = next(i.name for i in module if i.opcode == "dot")
    graph = neighbourhood(module, dot, 4)
    level = {name: number for number, row in enumerate(graph.levels) for name in row}
    assert all(level[made] < level[reader] for made, reader in graph.edges)
    assert to_dot(graph).count("->") == len(graph.edges) == to_svg(graph).count('class="edge"')


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["graph", "LOOP", "lop"], "no instruction 'lop'. Did you mean loop"),
        (["summary", "LOOP", "--module", "x*"], "no module is named 'x*'; there are loop."),
        (["summary", "nowhere.txt"], "No such file"),
        (["lint", "LOOP", "--explain", "nowhere.json"], "No such file"),
    ],
)
def test_errors_are_one_line(capsys, loop, arguments, message):
    code, out = run(capsys, *[loop if a == "LOOP" else a for a in arguments])
    assert code == 2
    assert out.err.startswith("bk-hlo: ")
    assert message in out.err
    assert out.err.count("\n") == 1


@pytest.mark.parametrize("command", ["summary", "calls", "lint", "diff", "graph", "html"])
def test_help(capsys, command):
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "SOURCE" in text
    assert "exit codes:\n  0  all is well\n  1  lint found something\n  2  " in text
    assert "--module PATTERN" in text


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["summary"], ["first", "second"]),
        (["calls"], ["first", "second"]),
        (["lint"], ["first", "second"]),
        (["graph", "b"], ["digraph"]),
        (["diff", "AFTER"], ["first"]),
    ],
)
def test_module_chooses_as_its_help_says(capsys, folder, command, shown):
    name, *rest = [str(folder) if word == "AFTER" else word for word in command]
    code, out = run(capsys, name, folder, *rest, "--module", "*s*")
    assert code in (0, 1)
    assert [line.split()[0].rstrip(":") for line in out.out.split("\n\n")] == shown


@pytest.mark.parametrize(
    ("option", "value"),
    [("--memory", "0"), ("--memory", "much"), ("--memory", "9" * 5000), ("--module", None)],
)
def test_wrong_arguments_end_with_2(capsys, loop, option, value):
    with pytest.raises(SystemExit) as caught:
        main(["summary", str(loop), option, *([value] if value else [])])
    assert caught.value.code == 2
    assert "expected" in capsys.readouterr().err


def test_one_finding_is_one(capsys, loop):
    _, out = run(capsys, "lint", loop, "--only", "missing-call")
    assert out.out.startswith("loop: 1 finding\n")
    _, out = run(capsys, "lint", loop)
    assert out.out.startswith("loop: 2 findings\n")


def test_a_reader_that_stops_does_not_open_the_gate(loop):
    """As in `bk-hlo lint dump | head -0`, where the shell reports the first failure of a pipe."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "bk_jax.hlo.cli", "lint", str(loop)]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    done = subprocess.run(
        command, stdout=writing, stderr=subprocess.PIPE, env=environment, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_terminal_without_unicode(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(
        "HloModule m\nENTRY e {\n  a = f32[4] parameter(0)\n  ROOT c = f32[4] custom-call(a), "
        'custom_call_target="bk_new", metadata={op_name="jit(f)/bk.norm[größe]/x"}\n}\n'
    )
    command = [sys.executable, "-m", "bk_jax.hlo.cli", "calls", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"gr\xf6\xdfe" in done.stdout
