"""Reading: every kind of input gives the same program, and bad input gives an error that helps."""

import contextlib
import inspect
import sys

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bk_jax.hlo import (
    HloError,
    check,
    compare,
    find_calls,
    load,
    neighbourhood,
    schema,
    summarize,
    to_html,
    to_svg,
)
from bk_jax.hlo.cli import main
from bk_jax.hlo.model import Shape
from bk_jax.hlo.parse import parser
from bk_jax.hlo.read import read_program
from hlo import programs

DUMP = {"xla_dump_hlo_as_proto": True, "xla_dump_hlo_as_text": True}


@pytest.fixture
def dump(compiled):
    return compiled("gpt2").folder


def one_file(dump, ending):
    (path,) = dump.glob(f"*cpu_after_optimizations.{ending}")
    return path


def numbers(module):
    summary = summarize(module)
    calls = [(c.target, c.layers, c.operands, c.flops) for c in find_calls(module)]
    return summary.flops, summary.nbytes, summary.op_counts, summary.custom_calls, sorted(calls)


def test_folder_text_proto_and_object_are_the_same_program(dump, compiled):
    (of_folder,) = load(dump)
    of_files = [load(one_file(dump, ending))[0] for ending in ("txt", "hlo.pb")]
    (of_object,) = load(compiled("gpt2").program)
    for other in (*of_files, of_object):
        assert numbers(other) == numbers(of_folder)
    assert of_folder.name == "jit_train"


def test_memory_is_the_same_from_text_and_proto_and_adds_up(dump, compiled):
    of_text, of_proto = (load(one_file(dump, e))[0].memory for e in ("txt", "hlo.pb"))
    assert of_text == of_proto
    program = compiled("gpt2").program
    (module,) = load(program)
    analysis = program.memory_analysis()
    assert module.memory.arguments == analysis.argument_size_in_bytes
    assert module.memory.temporaries == analysis.temp_size_in_bytes
    assert module.memory.peak == analysis.peak_memory_in_bytes
    assert module.memory.buffers[0].nbytes == max(b.nbytes for b in module.memory.buffers)


def test_the_stage_before_optimizations_is_in_the_folder_too(dump):
    (before,) = load(dump, "before")
    assert before.stage == "before"
    assert not any(i.opcode == "fusion" for i in before)
    assert numbers(before)[4] == numbers(load(programs.step("gpt2").lowered)[0])[4]


def test_the_train_step_comes_first(dump, tmp_path):
    for path in dump.glob("*after_optimizations.hlo.pb"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    jax.jit(lambda x: x @ x).lower(jnp.ones((400, 400))).compile(
        compiler_options={"xla_dump_to": str(tmp_path), **DUMP}
    )
    modules = load(tmp_path)
    assert [m.name for m in modules] == ["jit_train", "jit__lambda"]
    assert summarize(modules[1]).flops == 2 * 400**3


@pytest.mark.parametrize("name", list(programs.MODELS))
def test_stablehlo_for_cuda_is_read_in_a_process_without_a_gpu(name, tmp_path):
    lowered = programs.step(name, platform="cuda").lowered
    path = tmp_path / "step.mlir"
    path.write_text(lowered.as_text(debug_info=True))
    (module,), (again,) = load(lowered), load(path)
    assert numbers(module) == numbers(again)
    assert not find_calls(module)
    found = check(module, batch_size=programs.B)
    assert [f.rule for f in found if f.level == "error"] == ["missing-call"]
    assert "pure JAX stands in" in found[0].message


def test_dots_are_counted_as_xla_counts_them():
    compiled = jax.jit(jnp.dot).lower(jnp.ones((6, 7)), jnp.ones((7, 5))).compile()
    assert summarize(load(compiled)[0]).flops == compiled.cost_analysis()["flops"] == 2 * 6 * 7 * 5


def test_shapes_of_small_types():
    assert Shape("s4", (3, 4)).nbytes == 6
    assert Shape("f8e4m3fn", (3,)).nbytes == 3
    assert Shape("pred", (3,)).nbytes == 3
    assert Shape("token").nbytes == 0


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "the file is empty"),
        ("a.txt", b"hello", "neither HLO text"),
        ("a.txt", b"HloModule x\n", "expects name"),
        ("a.txt", b"HloModule x\n\xff\xfe", r"should be text, but byte 12 is not"),
        ("a.png", b"\x89PNG", "neither HLO text"),
        ("a.pb", b"\x0f", "not a protocol buffer"),
        ("a.pb", b"\x0a\x05ab", "not a protocol buffer, damaged, nested too deeply"),
        ("a.pb", b"\x80", "not a protocol buffer"),
        ("a.pb", b"\0" * 100, "not a protocol buffer"),
        ("a.pb", b"\x1a\x00", "without a program"),
        ("a.mlir", b"module {", "read with jaxlib"),
    ],
)
def test_foreign_files_are_refused_with_a_reason(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(HloError, match=message) as caught:
        load(tmp_path / name)
    assert name in str(caught.value)


def test_paths_and_objects_that_are_none(tmp_path):
    with pytest.raises(HloError, match="No such file"):
        load(tmp_path / "nothing.txt")
    with pytest.raises(HloError, match="no program of XLA in it"):
        load(tmp_path)
    with pytest.raises(HloError, match="got int"):
        load(3)
    with pytest.raises(HloError, match="stage must be"):
        load(tmp_path, "middle")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A program of a few kilobytes with a loop, a dot and buffers, in all forms."""
    folder = tmp_path_factory.mktemp("small")
    body = lambda i, x: jnp.tanh(x @ x)  # noqa: E731
    lowered = jax.jit(lambda x: jax.lax.fori_loop(0, 3, body, x)).lower(jnp.ones((2, 2)))
    lowered.compile(compiler_options={"xla_dump_to": str(folder), **DUMP})
    forms = {e: one_file(folder, e).read_bytes() for e in ("txt", "hlo.pb")}
    return {**forms, "mlir": lowered.as_text(debug_info=True).encode()}


def read_or_refuse(folder, ending, data):
    path = folder / f"fuzzed.{ending}"
    path.write_bytes(data)
    with contextlib.suppress(HloError):
        for module in load(path):
            look_at(module)


def look_at(module):
    str(summarize(module))
    find_calls(module)
    check(module, batch_size=2)
    to_html(module)
    str(compare(module, module))
    to_svg(neighbourhood(module, module.computations[module.entry].root))


@pytest.mark.parametrize("ending", ["txt", "hlo.pb", "mlir"])
@settings(max_examples=40)
@given(data=st.data())
def test_broken_files_never_crash(small, tmp_path_factory, ending, data):
    whole = bytearray(small[ending])
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.one_of(st.just(len(whole)), st.integers(0, len(whole))))
    read_or_refuse(tmp_path_factory.getbasetemp(), ending, bytes(whole[:cut]))


@pytest.fixture(scope="module")
def serialized(small):
    """Made once: jaxlib orders what it serializes anew each time."""
    return bytes(parser.canonical("T", small["txt"]))


@settings(max_examples=300)
@given(data=st.data())
def test_a_program_of_a_broken_jaxlib_never_crashes(serialized, data):
    """What jaxlib serializes is read here without its checks."""
    whole = bytearray(serialized)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(HloError):
        look_at(read_program(bytes(whole)).module)


def test_a_parser_that_dies_is_an_error_and_the_next_file_is_read(small, tmp_path, monkeypatch):
    from bk_jax.hlo import parse

    killer = tmp_path / "worker.py"
    killer.write_text("import os, sys\nprint('F fatal word', file=sys.stderr)\nos.abort()\n")
    with monkeypatch.context() as patch:
        patch.setattr(parse, "WORKER", killer)
        dying = parse.Parser()
        with pytest.raises(HloError, match=r"stopped on it\. F fatal word"):
            dying.canonical("T", small["txt"])
    assert dying.canonical("T", small["txt"])
    dying.close()


def test_a_worker_that_grew_large_is_ended_and_replaced(small, monkeypatch):
    from bk_jax.hlo import parse

    parser = parse.Parser()
    monkeypatch.setattr(parse, "LARGE", 1)
    first = parser.canonical("T", small["txt"])
    assert parser.canonical("T", small["txt"]) == first
    parser.close()


def test_without_protobuf_the_error_says_what_to_install(small, tmp_path, monkeypatch):
    path = tmp_path / "a.hlo.pb"
    path.write_bytes(small["hlo.pb"])
    schema._classes.cache_clear()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "google.protobuf", None)
        with pytest.raises(ImportError, match=r"pip install 'bk_jax\[hlo\]'"):
            load(path)
        assert main(["summary", str(path)]) == 2
    assert load(path)


def test_instructions_know_their_line_from_metadata_and_from_stack_frames():
    compiled = jax.jit(lambda x: jnp.sin(x) @ x).lower(jnp.ones((2, 2))).compile()
    (module,) = load(compiled)
    line = inspect.currentframe().f_lineno - 2
    sources = {i.source for i in module if i.opcode in ("dot", "sine")}
    assert {source.rpartition("/")[2] for source in sources} == {f"reading_test.py:{line}"}


def test_an_operand_that_is_not_there(small):
    data = schema.parse("Module", parser.canonical("T", small["txt"]))
    dot = next(i for c in data.computations for i in c.instructions if i.opcode == b"dot")
    dot.operands[0] = 77
    with pytest.raises(HloError, match="refers to 77, which is not in the program"):
        read_program(data.SerializeToString())
    data.entry = 77
    with pytest.raises(HloError, match="no entry computation"):
        read_program(data.SerializeToString())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda dot: dot.ClearField("operands"), r"\(dot\) does not fit its operands"),
        (lambda dot: setattr(dot, "dot", b"\x0a\x01\x09"), "does not fit its operands"),
        (lambda dot: setattr(dot, "dot", b"\x0a\x0a" + b"\xff" * 9 + b"\x01"), "does not fit"),
        (lambda dot: setattr(dot, "id", 77), "refers to"),
    ],
)
def test_a_program_that_jaxlib_would_not_write(small, change, message):
    data = schema.parse("Module", parser.canonical("T", small["txt"]))
    change(next(i for c in data.computations for i in c.instructions if i.opcode == b"dot"))
    with pytest.raises(HloError, match=message):
        read_program(data.SerializeToString())
