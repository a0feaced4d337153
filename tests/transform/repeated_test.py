"""What repeats is traced once and copied: the program is the same, and so are names and source lines."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bk_jax
from bk_jax import _compat, repeated
from bk_jax.program.backward import Backward
from bk_jax.program.replay import Replay
from transform.steps import count_up

LAYERS = 6


def loss(params, x):
    for layer, (kernel, bias) in enumerate(params["layers"]):
        with jax.named_scope(f"layer_{layer}"):
            x = jnp.tanh(x @ kernel + bias)
            x = x * jax.nn.softmax(x) + x * x
    rows = sum(jnp.take(table, jnp.int32([0, 2]), axis=0) for table in params["tables"])
    return jnp.mean(x**2) + jnp.sum(jnp.tanh(rows)) * jnp.mean(x)


PARAMS = {
    "layers": [(count_up(4, 4) / 16, count_up(4) / 4)] * LAYERS,
    "tables": [count_up(3, 2)] * LAYERS,
}
BATCH = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def lines(jaxpr):
    """All equations of a jaxpr and of what it calls, with types and names, and their source lines."""
    for eqn in _compat.split_closed(jaxpr)[0].eqns:
        types = ", ".join(str(v.aval) for v in (*eqn.invars, *eqn.outvars))
        yield f"{eqn.primitive} {types} {eqn.source_info.name_stack}", _compat.source_line(eqn)
        for inner in _compat.inner_jaxprs(eqn):
            yield from lines(inner)


def traced(**options):
    grad_fn = bk_jax.clipped_value_and_grad(loss, **options)
    return list(lines(jax.jit(grad_fn).trace(PARAMS, BATCH).jaxpr))


@pytest.mark.parametrize("method", ["auto", "ghost_clip", "opacus"])
def test_the_program_is_the_one_without_copies(method, monkeypatch):
    copied = traced(method=method)
    monkeypatch.setattr(repeated, "WORTH_IT", 1000)
    plain = traced(method=method)
    assert [what for what, _ in copied] == [what for what, _ in plain]
    assert any("layer_5" in what for what, _ in copied)
    # An equation inside of jax.numpy has no line of the user's; its copies have that of the call.
    lines = zip(copied, plain, strict=True)
    assert all(line in (own, own or line) for (_, line), (_, own) in lines)


def test_an_equation_that_repeats_is_evaluated_once_per_kind(monkeypatch):
    seen = []
    bind = _compat.bind

    monkeypatch.setattr(
        _compat, "bind", lambda eqn, operands: seen.append(eqn) or bind(eqn, operands)
    )
    counts = []
    batched = Backward.batched

    def count(*args):
        """While it is differentiated, before it is batched."""
        found = args[0]._one_example(args[2], args[3], False)
        counts.append(len(seen))
        return found and batched(*args)

    monkeypatch.setattr(Backward, "batched", count)
    traced()
    seen = seen[: counts[0]]
    tanh = [eqn for eqn in seen if eqn.primitive is _compat.prims.tanh_p]
    assert len(tanh) == 2  # of the layers, and of the tables, which is one of its kind


def test_outside_of_jit_nothing_is_compiled_together(monkeypatch):
    monkeypatch.setattr(repeated.jax, "jit", None)
    assert repeated.RepeatedEquations([])._kinds == []
    assert _compat.transformations() is None


def test_transformations_are_counted_down_to_jit():
    counts = []

    def count(x):
        counts.append(_compat.transformations())
        return x

    jax.jit(count)(1.0)
    jax.jit(jax.vmap(count))(jnp.ones(2))
    jax.jit(jax.vmap(jax.grad(count)))(jnp.ones(2))
    jax.vmap(count)(jnp.ones(2))
    assert counts == [0, 1, 2, None]


def kinds(fun, *args):
    return [repeated.kind_of(eqn) for eqn in jax.make_jaxpr(fun)(*args).eqns]


def test_equations_of_one_kind_do_the_same():
    one, same, other = kinds(lambda x: (x * 2.0, x * 2.0, x * 3.0), np.ones(2))
    assert one == same != other
    zero, negative = kinds(lambda x: (x + 0.0, x + -0.0), np.ones(2))
    assert zero != negative
    rows, columns = kinds(lambda x: (x.sum(0), x.sum(1)), np.ones((2, 2)))
    assert rows != columns
    narrow, wide = kinds(lambda x, y: (jnp.sin(x), jnp.sin(y)), np.ones(2), np.ones(3))
    assert narrow != wide


def test_an_equation_that_can_not_be_compared_has_no_kind():
    def unhashable(x):
        return jax.pure_callback(np.sin, x, x)

    (eqn,) = jax.make_jaxpr(jax.lax.neg)(1.0).eqns
    assert repeated.kind_of(eqn) is not None
    assert repeated.kind_of(eqn.replace(params={"list": [1]})) is None
    assert kinds(unhashable, np.float32(1))


def test_a_visit_of_unknown_kind_is_made_for_every_equation():
    visited = []

    def visit(path, eqn, operands, extra):
        visited.append(path)
        return _compat.bind(eqn, operands), None

    def program(x):
        for _ in range(LAYERS):
            x = jnp.sin(x)
        return x

    jaxpr = jax.make_jaxpr(program)(1.0)
    extras = {(i,): 0.0 for i in range(LAYERS)}
    replay = Replay(visit, lambda path, depth: True)
    jax.jit(jax.grad(lambda x: replay(jaxpr, [x], extras)[0][0]))(1.0)
    assert visited == list(extras)


def test_a_function_with_another_state_is_traced_again():
    state, calls = ["a"], []

    @repeated.repeated("sign", state=lambda: state[0])
    def scaled(x, *, sign):
        calls.append(sign)
        return sign * x

    def step(x):
        total = scaled(x, sign=1) + scaled(x, sign=1) + scaled(x, sign=-1)
        state[0] = "b"
        return total + scaled(x, sign=1)

    assert jax.jit(step)(3.0) == 6.0
    assert calls == [1, -1, 1]
    assert scaled(2.0, sign=1) == 2.0
    assert len(calls) == 4
