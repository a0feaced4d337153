"""Calls and lint: what is planned is found, what is broken is caught, and costs are the plan's."""

import json
from xml.etree import ElementTree

import pytest

from bk_jax.hlo import HloError, Limits, check, fails, find_calls, load
from bk_jax.hlo.arguments import Arguments
from bk_jax.hlo.formats import junit, sarif
from bk_jax.hlo.lint import RULES
from bk_jax.hlo.stacks import layers_of, name_stacks, runs
from hlo import programs

BROKEN = (("up", "store"),)


def read(tmp_path, text):
    path = tmp_path / "program.txt"
    path.write_text(text)
    return load(path)[0]


@pytest.mark.native
@pytest.mark.parametrize("name", list(programs.MODELS))
def test_a_good_step_passes(compiled, name):
    step = programs.step(name)
    for source in (compiled(name).program, compiled(name).folder, step.lowered):
        (module,) = load(source)
        findings = check(module, explanation=step.explanation)
        assert not fails(findings), findings
        assert all(f.rule == "per-sample-gradient" for f in findings)


@pytest.mark.native
def test_calls_have_the_layers_and_the_flops_of_the_plan(compiled):
    for name in ("gpt2", "scan"):
        (module,) = load(compiled(name).program)
        calls = find_calls(module)
        rows = {row.path: row for row in programs.step(name).explanation.rows}
        norms = {c.layers[0]: c for c in calls if c.target == "bk_ghost_norm"}
        assert set(norms) == {path for path, row in rows.items() if row.route == "ghost"}
        for path, call in norms.items():
            assert call.flops == rows[path].extra_flops["ghost"]
            assert call.dtype == "f32"
        sums = {c.layers[0]: c for c in calls if c.target == "bk_clipped_gemm"}
        for path, call in sums.items():
            row = rows[path]
            assert call.flops == 2 * programs.B * row.n * row.t * row.d * row.p


@pytest.mark.native
def test_a_layer_that_is_forced_to_instantiate_is_caught(compiled):
    (module,) = load(compiled("gpt2", BROKEN).program)
    findings = check(module, explanation=programs.step("gpt2").explanation)
    assert fails(findings)
    by_rule = {finding.rule: finding for finding in findings if finding.level == "error"}
    assert set(by_rule) == {"per-sample-gradient", "missing-call"}
    stored = by_rule["per-sample-gradient"]
    assert stored.layers == ("up",)
    assert stored.nbytes == 4 * programs.B * programs.D * 2 * programs.D
    missing = [f for f in findings if f.rule == "missing-call"]
    assert all(f.layers == ("up",) for f in missing)
    assert any("lacks bk_ghost_norm for its norm" in f.message for f in missing)


@pytest.mark.native
@pytest.mark.parametrize(("name", "layer"), [("resnet", "down"), ("scan", "layers")])
def test_a_layer_that_is_forced_to_instantiate_is_caught_in_a_dump(compiled, name, layer):
    (module,) = load(compiled(name, ((layer, "store"),)).folder)
    findings = check(module, explanation=programs.step(name).explanation)
    errors = {(f.rule, f.layers) for f in findings if f.level == "error"}
    assert errors == {("per-sample-gradient", (layer,)), ("missing-call", (layer,))}


@pytest.mark.parametrize(
    ("name", "layer"), [("gpt2", "up"), ("resnet", "down"), ("scan", "layers")]
)
def test_instantiation_is_caught_in_a_program_for_cuda(name, layer):
    (module,) = load(programs.step(name, ((layer, "store"),), "cuda").lowered)
    findings = check(module, batch_size=programs.B, only=["per-sample-gradient"])
    assert [f.layers for f in findings if f.level == "error"] == [(layer,)]


@pytest.mark.parametrize(("name", "count"), [("gpt2", 4), ("resnet", 5), ("scan", 1)])
def test_weight_gradients_of_ordinary_training_are_found(name, count):
    (module,) = load(programs.step(name, private=False).lowered)
    findings = check(module, batch_size=programs.B, only=["weight-gradient-dot"])
    assert len(findings) == count
    assert all("makes the weight gradient" in f.message for f in findings)


@pytest.mark.native
@pytest.mark.parametrize("name", list(programs.ACCIDENTS))
def test_sizes_that_agree_by_accident_are_no_gradients(compiled, name):
    step = programs.step(name)
    for source in (compiled(name).program, step.lowered):
        findings = check(load(source)[0], explanation=step.explanation)
        assert not fails(findings), findings
        assert all(" bk_" in f" {f.message}" for f in findings)


@pytest.mark.parametrize(("name", "examples"), [("threes", 3), ("square", programs.D)])
def test_sizes_that_agree_by_accident_are_no_gradients_on_cuda(name, examples):
    (module,) = load(programs.step(name, platform="cuda").lowered)
    gradients = ["per-sample-gradient", "weight-gradient-dot"]
    findings = check(module, batch_size=examples, only=gradients)
    assert not fails(findings), findings
    assert all(f.layers for f in findings)


@pytest.mark.parametrize(
    ("name", "examples", "layer"),
    [("threes", 3, "down"), ("square", programs.D, "second")],
)
def test_gradients_are_found_among_sizes_that_agree_by_accident(name, examples, layer):
    (module,) = load(programs.step(name, ((layer, "store"),), "cuda").lowered)
    findings = check(module, batch_size=examples, only=["per-sample-gradient"])
    assert [f.layers for f in findings if f.level == "error"] == [(layer,)]


@pytest.mark.parametrize(
    ("name", "examples", "count"), [("threes", 3, 5), ("square", programs.D, 3)]
)
def test_weight_gradients_are_found_among_sizes_that_agree_by_accident(name, examples, count):
    (module,) = load(programs.step(name, private=False).lowered)
    findings = check(module, batch_size=examples, only=["weight-gradient-dot"])
    assert len(findings) == count


ARGUMENTS = """HloModule jit_step
ENTRY e {
  stem = f32[3,3,3,8] parameter(0), metadata={op_name="params['stem']"}
  block = f32[3,3,8,8] parameter(1), metadata={op_name="params['block']"}
  head = f32[8,10] parameter(2), metadata={op_name="params['head']"}
  frozen = f32[6,10] parameter(3), metadata={op_name="frozen['up']"}
  scale = f32[10] parameter(4), metadata={op_name="frozen['scale']"}
  image = f32[3,3,3,8] parameter(5), metadata={op_name="batch['image']"}
  rest = f32[6,8,8] parameter(6), metadata={op_name="batch['rest']"}
  key = u32[2] parameter(7), metadata={op_name="batch['key']"}
  ROOT t = RESULTS
}
"""
BOTH = "(f32[3,3,3,8], f32[3,3,8,8]) tuple(stem, block)"


@pytest.mark.parametrize(
    ("change", "weights"),
    [
        ({}, {"stem", "block", "head", "frozen", "scale", "key"}),
        # Nothing of its sizes comes back.
        ({BOTH: "(f32[3,3,3,8]) tuple(stem)"}, {"stem", "head", "frozen", "scale", "key"}),
        # Two of these sizes have the same owner, and one comes back.
        ({"batch[": "params["}, {"block", "head", "frozen", "scale", "rest", "key"}),
        # One owner, or none: names do not help.
        ({"batch[": "x[", "params[": "x[", "frozen[": "x["}, {"head", "scale", "key"}),
        ({", metadata": ", frontend_attributes={a=\"b\"}, metadata", "op_name": "op_type"},
         {"head", "scale", "key"}),
    ],
)  # fmt: skip
def test_which_arguments_are_weights(tmp_path, change, weights):
    text = ARGUMENTS.replace("RESULTS", BOTH)
    for old, new in change.items():
        text = text.replace(old, new)
    assert Arguments.read(read(tmp_path, text), examples=3).weights == weights


STACK = """HloModule jit_step
ENTRY e {
  x = f32[3,5,8] parameter(0), metadata={op_name="batch"}
  w = f32[3,8,8] parameter(1), metadata={op_name="params['w']"}
  head = f32[8,10] parameter(2), metadata={op_name="params['head']"}
  FIRST
  h = f32[3,5,8] dot(x, first), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  g = f32[3,5,8] tanh(h)
  ROOT made = f32[3,8,8] dot(x, g), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1},
    rhs_contracting_dims={1}, metadata={op_name="jit(step)/bk.keep[w]/dot_general"}
}
"""
SLICED = """cut = f32[1,8,8] slice(w), slice={[0:1],[0:8],[0:8]}
  first = f32[8,8] reshape(cut)"""


def test_a_layer_of_a_stack_as_high_as_the_batch_is_found(tmp_path):
    """Its gradients for 3 examples have the sizes of the stack of 3 layers."""
    module = read(tmp_path, STACK.replace("FIRST", SLICED))
    (finding,) = check(module, batch_size=3, only=["per-sample-gradient"])
    assert finding.instruction == "made"


SHARED = """HloModule jit_step
square { x = f32[4,4] parameter(0)
  ROOT d = f32[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={op_name="dot_general"} }
ENTRY e {
  p = f32[4,4] parameter(0)
  a = f32[4,4] call(p), to_apply=square, metadata={op_name="jit(step)/bk.norm[up]/jit(square)"}
  b = f32[4,4] call(a), to_apply=square, metadata={op_name="jit(step)/bk.sum[down]/jit(square)"}
  c = f32[4,4] call(b), to_apply=square, metadata={op_name="jit(step)/transpose(jvp())/jit(square)"}
  ROOT n = f32[4,4] negate(c)
}
"""


def test_what_stands_in_a_function_belongs_to_everybody_who_calls_it(tmp_path):
    module = read(tmp_path, SHARED)
    dot = next(i for i in module if i.opcode == "dot")
    assert name_stacks(module, dot) == (
        "jit(step)/bk.norm[up]/jit(square)/dot_general",
        "jit(step)/bk.sum[down]/jit(square)/dot_general",
        "jit(step)/transpose(jvp())/jit(square)/dot_general",
    )
    assert layers_of(module, dot) == ("up", "down")
    assert runs(module, dot) == 3


LOOPS = """HloModule jit_step
body { x = f32[4,4] parameter(0)
  ROOT d = f32[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={op_name="jit(step)/bk.norm[up]/while/body/dot_general"} }
condition { y = f32[4,4] parameter(0)
  ROOT no = pred[] constant(false) }
ENTRY e {
  p = f32[4,4] parameter(0)
  a = f32[4,4] while(p), condition=condition, body=body,
    metadata={op_name="jit(step)/bk.norm[up]/while"}
  b = f32[4,4] while(a), condition=condition, body=body,
    metadata={op_name="jit(step)/bk.norm[low]/while"}
  ROOT n = f32[4,4] negate(b)
}
"""


def test_loops_that_do_the_same_share_a_body(tmp_path):
    """XLA for GPUs gives equal loops one body, or copies of it, with the names of one of them."""
    module = read(tmp_path, LOOPS)
    dot = next(i for i in module if i.opcode == "dot")
    assert layers_of(module, dot) == ("up", "low")
    copied = read(tmp_path, LOOPS.replace("a = f32[4,4] while(p), condition=condition, body=body",
                                          "a = f32[4,4] negate(p)"))  # fmt: skip
    dot = next(i for i in copied if i.opcode == "dot")
    assert layers_of(copied, dot) == ("low",)
    other = read(tmp_path, LOOPS.replace("jit(step)/bk.norm[up]/while/body", "jit(step)/moved"))
    dot = next(i for i in other if i.opcode == "dot")
    assert name_stacks(other, dot) == ("jit(step)/moved/dot_general",)


@pytest.mark.native
def test_layout_copies_over_the_limit_are_found(compiled):
    (module,) = load(compiled("scan").program)
    moved = [n.nbytes for c in find_calls(module) for n in c.neighbours if "transpose" in n.kind]
    assert moved
    largest = max(moved)
    assert not check(module, limits=Limits(layout=largest))
    findings = check(module, limits=Limits(layout=largest - 1))
    assert {f.rule for f in findings} == {"layout-copy"}
    assert fails(findings)
    assert "into bk_" in findings[0].message


COLLECTIVES = """HloModule step
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y) }
ENTRY e {
  w = f32[512,64] parameter(0)
  a = f32[8,100,64] parameter(1)
  g = f32[512,64] all-reduce(w), replica_groups={}, to_apply=add
  h = f32[8,100,64] tanh(a)
  m = f32[32,100,64] all-gather(h), dimensions={0}, replica_groups={{0,1,2,3}}
  r = f32[100,64,8] transpose(h), dimensions={1,2,0}
  q = f32[100,64,8] all-reduce(r), replica_groups={}, to_apply=add
  ROOT t = (f32[512,64], f32[32,100,64], f32[100,64,8]) tuple(g, m, q)
}
"""


def test_collectives_of_activations_are_found_and_those_of_gradients_are_not(tmp_path):
    module = read(tmp_path, COLLECTIVES)
    findings = check(module, batch_size=8, only=["activation-collective"])
    assert sorted(f.instruction for f in findings) == ["m", "q"]
    assert not check(
        module, only=["activation-collective"], limits=Limits(collective=1 << 30), batch_size=8
    )


PRIVATE = """HloModule private
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y) }
ENTRY e {
  w = f32[512,64] parameter(0)
  a = f32[8,100,64] parameter(1)
  n = f32[2,8] parameter(2)
  s = f32[512,64] all-reduce(w), replica_groups={}, to_apply=add, metadata={op_name="jit(f)/bk.sum[w]/x"}
  l = f32[2,8] all-reduce(n), replica_groups={}, to_apply=add, metadata={op_name="jit(f)/bk.norm/psum"}
  c = f32[32,100,64] all-gather(a), dimensions={0}, metadata={op_name="jit(f)/bk.norm[w]/x"}
  m = f32[8,400,64] all-gather(a), dimensions={1}, metadata={op_name="jit(f)/jvp()/dot_general"}
  z = f32[512,64] all-reduce(w), replica_groups={}, to_apply=add, metadata={op_name="jit(f)/bk.noise/x"}
  ROOT t = (f32[512,64], f32[2,8], f32[32,100,64], f32[8,400,64], f32[512,64]) tuple(s, l, c, m, z)
}
"""


def test_a_private_step_adds_up_gradients_and_norms_and_sends_nothing_else(tmp_path):
    """The sums `s` and `l` are as they should be, and `m` is the model's own."""
    findings = check(
        read(tmp_path, PRIVATE),
        batch_size=8,
        only=["private-collective"],
        limits=Limits(collective=0),
    )
    assert sorted((f.instruction, f.message.split(": ")[-1]) for f in findings) == [
        ("c", "examples leave their device."),
        ("z", "noise is not local."),
    ]


def test_a_program_that_can_not_tell_its_examples(tmp_path):
    module = read(tmp_path, COLLECTIVES)
    findings = check(module, only=["unknown-batch-size", "missing-call"])
    assert [(f.rule, f.level) for f in findings] == [
        ("missing-call", "error"), ("unknown-batch-size", "warning"),
    ]  # fmt: skip
    assert "nothing was rewritten" in findings[0].message
    assert not check(module, only=["unknown-batch-size"], batch_size=8)


@pytest.mark.parametrize("wrong", ["{}", "not json", '{"rows": [{"path": 1}]}', 7])
def test_an_explanation_that_is_none(tmp_path, wrong):
    with pytest.raises(HloError, match="the explanation is not one"):
        check(read(tmp_path, COLLECTIVES), explanation=wrong)


def test_findings_for_machines(tmp_path):
    module = read(tmp_path, COLLECTIVES)
    found = [(module, check(module, batch_size=8))]
    log = json.loads(json.dumps(sarif(found)))
    (run,) = log["runs"]
    assert {result["ruleId"] for result in run["results"]} <= set(RULES)
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == list(RULES)
    assert len(run["results"]) == len(found[0][1]) > 0
    suite = ElementTree.fromstring(junit(found)).find("testsuite")
    assert suite.get("tests") == str(len(RULES))
    assert len(suite.findall("testcase/failure")) == int(suite.get("failures")) > 0
