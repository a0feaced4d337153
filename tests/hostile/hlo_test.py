"""Dumps that mean harm: every command refuses them with a reason, or shows them and does nothing else.

To add a case, write a file into one of the tables:

| table | every command must |
|---|---|
| `REFUSED` | end with code 2 and one line that holds the given words |
| `SHOWN` | end with 0 (`lint`: or 1), and print only what can be seen; JSON and XML must be whole |

No case measures time: an algorithm of the wrong order would not end at all. What needs too much memory
runs in a process of its own, under a limit.
"""

import json
import os
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from support.process import PACKAGE

from bk_jax.hlo import HloError, HloWarning, load, parse, schema
from bk_jax.hlo.cli import main
from bk_jax.hlo.read import read_program

GIB = 1 << 30


def program(*lines, functions=""):
    """An entry computation of the given lines."""
    return "HloModule m\n" + functions + "ENTRY e {\n  " + "\n  ".join(lines) + "\n}\n"


def call(attributes="", metadata="", target="bk_conv_norm"):
    """A program with one custom call."""
    return program(
        "x = f32[2,6,6,4] parameter(0)",
        "g = f32[2,4,4,5] parameter(1)",
        f'ROOT c = (f32[2], f32[2]) custom-call(x, g), custom_call_target="{target}", '
        f"api_version=API_VERSION_TYPED_FFI, backend_config={{{attributes}}}, "
        f'metadata={{op_name="{metadata}"}}',
    )


def nested_tuples(depth):
    return program(f"ROOT p = {'(' * depth}f32[2]{')' * depth} parameter(0)")


def huge(*dims):
    shape = f"f32[{','.join(map(str, dims))}]"
    return program(f"p = {shape} parameter(0)", f"ROOT r = {shape} sine(p)")


def chain(length, make):
    """Functions that call one another; `make` is the body of one, from the name of the one before."""
    first = "step0 {\n  p = f32[2] parameter(0)\n  ROOT r = f32[2] sine(p)\n}\n"
    bodies = enumerate([make(f"step{n}") for n in range(length - 1)], 1)
    others = [f"step{n} {{\n  p = f32[2] parameter(0)\n  {body}\n}}\n" for n, body in bodies]
    last = f"ROOT r = f32[2] call(p), to_apply=step{length - 1}"
    return program("p = f32[2] parameter(0)", last, functions=first + "".join(others))


def doubling(function):
    """A fusion of two fusions of the same function: 60 of these are 2^60 operations."""
    kind = f"kind=kLoop, calls={function}"
    return f"a = f32[2] fusion(p), {kind}\n  ROOT r = f32[2] fusion(a), {kind}"


def loop(trips):
    return program(
        "a = s32[] parameter(0)",
        "t = (s32[]) tuple(a)",
        "ROOT w = (s32[]) while(t), condition=condition, body=body, "
        f'backend_config={{"known_trip_count":{{"n":"{trips}"}}}}',
        functions="body { ROOT p = (s32[]) parameter(0) }\n"
        "condition { p = (s32[]) parameter(0)\n  ROOT c = pred[] constant(true) }\n",
    )


REFUSED = {
    "2000 nested tuples": ("txt", nested_tuples(2000), "nested too deeply"),
    "1000 nested functions": (
        "txt",
        chain(1000, lambda name: f"ROOT r = f32[2] call(p), to_apply={name}"),
        "nest deeper than 128",
    ),
    "a size of 2^126": ("txt", huge(2**63 - 1, 2**63 - 1), "more than 2^63 bytes"),
    "a size of 2^65 bytes": ("txt", huge(2**63 - 1), "more than 2^63 bytes"),
    "a size known at run time": ("txt", huge("?", 5), "known only at run time"),
    "a negative size": ("txt", huge(-5), "Syntax error"),
    "zeros in the place of a program": ("hlo.pb", b"\0" * 10_000_000, "not a protocol buffer"),
    "a field of zeros": ("hlo.pb", b"\x0a\x80\xad\xe2\x04" + b"\0" * 10_000_000, "read with jaxlib"),
    "numbers where a program should be": ("hlo.pb", b"\x08\0" * 5_000_000, "without a program"),
    "groups without an end": ("hlo.pb", b"\x0b" * 1_000_000, "nested too deeply"),
    "a field longer than the file": ("hlo.pb", b"\x0a\xff\xff\xff\x7f", "not a protocol buffer"),
    "zeros after a name": ("txt", b"HloModule m" + b"\0" * 10_000_000, "Syntax error"),
    "zeros in StableHLO": ("mlir", b"\0" * 10_000_000, "read with jaxlib"),
    "brackets in StableHLO": ("mlir", "(" * 100_000, "read with jaxlib"),
    "a constant of 4.8 GB in 64 bytes": (
        "txt", program("ROOT c = f32[1200000000] constant({...})"), "--memory",
    ),
    "escapes in a syntax error": ("txt", "HloModule m\n\x1b[2J\x1b]0;title\x07", r"\x1b[2J"),
}  # fmt: skip
ESCAPES = "\x1b[31m\x1b]0;title\x07\x9b2J\u202e\u200b\x7f\\n\\tnothing found"
SHOWN = {
    "a splat of 400 million numbers": call("kernel = dense<1> : tensor<400000000x3xi64>"),
    "a number of 5000 digits": call(f"groups = {'9' * 5000} : i64"),
    "an attribute without an end": call("a" * 1_000_000),
    "attributes that begin one another": call("a = dense<" * 50_000),
    "a name stack that never ends": call(metadata="bk.norm[" * 100_000),
    "a name of a megabyte": call(metadata=f"jit(f)/bk.norm[{'x' * 1_000_000}]/y"),
    "escapes in a layer": call(metadata=f"jit(f)/bk.norm[{ESCAPES}]/y"),
    "escapes in a target": call(target=f"bk_{ESCAPES}"),
    "escapes in an attribute": call(f'form = "{ESCAPES}"'.replace("\\n", "").replace("\\t", "")),
    "2^60 fusions": chain(60, doubling),
    "a loop of 10^5000 runs": loop("9" * 5000),
    "a loop of 10^18 runs": loop("9" * 18),
}
COMMANDS = {
    "summary": ["summary", "FILE", "--all"],
    "summary as JSON": ["summary", "FILE", "--json"],
    "calls": ["calls", "FILE"],
    "calls as JSON": ["calls", "FILE", "--json"],
    "lint": ["lint", "FILE", "--batch-size", "2"],
    "lint as JSON": ["lint", "FILE", "--format", "sarif"],
    "lint as XML": ["lint", "FILE", "--format", "junit"],
    "diff": ["diff", "FILE", "FILE"],
    "graph": ["graph", "FILE", "r"],
    "html": ["html", "FILE", "--out", "OUT"],
}


def written(folder, ending, content):
    path = folder / f"hostile.{ending}"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def run(capsys, path, command):
    places = {"FILE": str(path), "OUT": str(path.with_suffix(".html"))}
    code = main([places.get(word, word) for word in command])
    return code, capsys.readouterr()


@pytest.mark.parametrize("name", list(REFUSED))
def test_refused(capsys, tmp_path, name):
    ending, content, words = REFUSED[name]
    path = written(tmp_path, ending, content)
    for command in COMMANDS.values():
        code, out = run(capsys, path, command)
        assert (code, out.out) == (2, ""), command
        assert out.err.startswith(f"bk-hlo: {path}: ")
        assert words in out.err
        assert out.err.removesuffix("\n").isprintable()
        assert len(out.err) < 1000


@pytest.mark.parametrize("name", list(SHOWN))
def test_shown(capsys, tmp_path, name):
    path = written(tmp_path, "txt", SHOWN[name])
    graph = ["graph", "FILE", next(i.name for i in load(path)[0] if i.opcode != "parameter")]
    for title, command in (COMMANDS | {"graph": graph}).items():
        code, out = run(capsys, path, command)
        assert (code, out.err) in [(0, ""), (1, "")], out.err
        assert code == 0 or command[0] == "lint"
        assert all(line.isprintable() for line in out.out.splitlines())
        if "JSON" in title:
            json.loads(out.out)
        if "XML" in title:
            ElementTree.fromstring(out.out)


def test_a_picture_of_escapes_is_whole(capsys, tmp_path):
    path = written(tmp_path, "txt", SHOWN["escapes in a layer"])
    assert main(["graph", str(path), "c", "--svg", str(tmp_path / "a.svg")]) == 0
    assert ElementTree.parse(tmp_path / "a.svg").getroot() is not None


def test_a_line_can_not_be_forged(capsys, tmp_path):
    path = written(tmp_path, "txt", call(metadata="jit(f)/bk.norm[a\\nm: nothing found]/y"))
    _, out = run(capsys, path, COMMANDS["calls"])
    assert r"a\nm: nothing found" in out.out
    (module,) = load(path)
    assert module.bk_calls[0].op_name == r"jit(f)/bk.norm[a\nm: nothing found]/y"


def test_names_in_the_text_of_a_buffer_assignment(capsys, tmp_path):
    path = written(tmp_path, "txt", huge(4))
    beside = tmp_path / "hostile-buffer-assignment.txt"
    name = "x" * 100_000 + "\x1b[31m"
    beside.write_text(
        f"allocation 0: size 16, maybe-live-out:\n value: <1 {name} @0> (size=16,offset=0): f32[4]\n"
        f" value: <2 {'y' * 100_000}\nallocation 1: size {'9' * 5000}\n"
    )
    code, out = run(capsys, path, COMMANDS["summary"])
    assert code == 0
    assert r"\x1b[31m" in out.out
    assert all(line.isprintable() for line in out.out.splitlines())


def test_escapes_in_the_name_of_a_file(capsys, tmp_path):
    path = tmp_path / "red\x1b[31m\n.txt"
    path.write_text("nothing")
    assert main(["summary", str(path)]) == 2
    assert r"red\x1b[31m\n.txt: neither HLO text" in capsys.readouterr().err
    path.write_text(huge(4))
    assert main(["diff", str(path), str(path)]) == 0
    assert r"red\x1b[31m\n.txt" in capsys.readouterr().out


@pytest.fixture
def folder(tmp_path):
    """A dump of three modules, of which one is broken."""
    texts = {"good": huge(4), "bad": nested_tuples(2000), "other": huge(3)}
    for name, text in texts.items():
        (tmp_path / f"module_0.{name}.cpu_after_optimizations.txt").write_text(text)
    return tmp_path


def test_one_broken_module_does_not_block_a_folder(capsys, folder):
    code, out = run(capsys, folder, COMMANDS["summary"])
    assert code == 2  # something was not read, whatever was found in the rest
    assert out.out.count("operations:") == 2
    assert out.err.startswith("bk-hlo: left out ")
    assert out.err.count("\n") == 1
    assert "module_0.bad" in out.err
    assert run(capsys, folder, COMMANDS["lint"])[0] == 2
    with pytest.warns(HloWarning, match=r"module_0\.bad.*nested too deeply"):
        modules = load(folder)
    assert [module.source.split(".")[-3] for module in modules] == ["good", "other"]


def test_a_folder_of_nothing_but_broken_modules(capsys, folder):
    for name in ("good", "other"):
        (folder / f"module_0.{name}.cpu_after_optimizations.txt").unlink()
    code, out = run(capsys, folder, COMMANDS["summary"])
    assert (code, out.out) == (2, "")
    assert "module_0.bad" in out.err


def test_what_is_no_regular_file_is_not_opened(capsys, tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    assert main(["summary", str(tmp_path / "pipe.txt")]) == 2
    assert "not a regular file" in capsys.readouterr().err


def test_a_mistake_of_our_own_has_its_own_code(capsys, tmp_path, monkeypatch):
    def wrong(module):
        raise ZeroDivisionError("\x1b[31m")

    monkeypatch.setattr("bk_jax.hlo.cli.summarize", wrong)
    code, out = run(capsys, written(tmp_path, "txt", huge(4)), COMMANDS["summary"])
    assert code == 3
    assert r"ZeroDivisionError: \x1b[31m" in out.err
    assert "a mistake in bk-hlo" in out.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "the explanation is not one"),
        ('{"rows": [], "batch_size": "many"}', "the explanation is not one"),
        ('{"rows": [], "batch_size": -1}', "the explanation is not one"),
    ],
)
def test_explanations(capsys, tmp_path, text, words):
    plan = tmp_path / "plan.json"
    plan.write_text(text)
    path = written(tmp_path, "txt", huge(4))
    assert main(["lint", str(path), "--explain", str(plan)]) == 2
    assert words in capsys.readouterr().err


def test_escapes_in_an_explanation(capsys, tmp_path):
    plan = tmp_path / "plan.json"
    row = {"path": "a\x1b[31m", "kind": "dense", "route": "ghost"}
    plan.write_text(json.dumps({"rows": [row]}))
    path = written(tmp_path, "txt", huge(4))
    assert main(["lint", str(path), "--explain", str(plan), "--batch-size", "2"]) == 1
    assert r"a\x1b[31m (dense, ghost) lacks" in capsys.readouterr().out


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(PACKAGE), "OPENBLAS_NUM_THREADS": "1"}


def command_in_a_process(path, limit):
    """`bk-hlo calls` where no process may take more than `limit` bytes."""
    command = [sys.executable, "-m", "bk_jax.hlo.cli", "calls", str(path)]
    return subprocess.run(
        ["sh", "-c", f'ulimit -v {limit // 1024}; exec "$@"', "sh", *command],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_splat_is_not_written_out(tmp_path):
    """As a list it would take 3.2 GB."""
    path = written(tmp_path, "txt", SHOWN["a splat of 400 million numbers"])
    done = command_in_a_process(path, GIB)
    assert done.returncode == 0, done.stderr
    assert "bk_conv_norm" in done.stdout


def test_too_little_memory_is_an_error_of_one_line(tmp_path):
    """Buffers of two bytes each, which take 100 bytes and more when they are read."""
    file = schema.parse("File", b"")
    file.program = parse.parser.canonical("T", huge(4).encode())
    file.buffers = b"\x0a\x00" * 10_000_000
    path = written(tmp_path, "hlo.pb", file.SerializeToString())
    done = command_in_a_process(path, 3 * GIB // 4)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1
    assert "memory" in done.stderr


def test_the_command_limits_its_own_memory_by_the_size_of_its_input(tmp_path):
    path = written(tmp_path, "txt", huge(4))
    code = f"""if True:
        import resource, sys
        from bk_jax.hlo import cli
        code = cli.main(["summary", {str(path)!r}], is_own_process=True)
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        print(code, limit)"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    exit_code, limit = map(int, done.stdout.splitlines()[-1].split())
    assert exit_code == 0
    assert 2 * GIB < limit < 3 * GIB


def test_functions_that_stand_after_their_callers():
    data = schema.parse("Module", parse.parser.canonical("T", chain(3, doubling).encode()))
    found = list(data.computations)
    del data.computations[:]
    data.computations.extend(reversed(found))
    with pytest.raises(HloError, match="calls step2, which does not stand before it"):
        read_program(data.SerializeToString())
