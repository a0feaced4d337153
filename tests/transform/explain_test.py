"""Explain: text, data, notebook, totals and warnings."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bk_jax
from bk_jax.planning.methods import METHODS
from transform.steps import count_up

PARAMS = {
    "embed": count_up(11, 4),
    "kernel": count_up(4, 5),
    "bias": count_up(5),
    "frozen": np.int32(3),
    "unused": count_up(2),
}
IDS = np.zeros((8, 3), np.int32)


def loss(params, ids):
    hidden = params["embed"][ids] @ params["kernel"] + params["bias"]
    return jnp.sum(jnp.tanh(hidden))


def explain(**options):
    return bk_jax.dp_value_and_grad(loss, **options).explain(PARAMS, IDS)


def test_rows_say_what_happens_to_every_parameter():
    rows = {row.path: row for row in explain().rows}
    assert set(rows) == {"embed", "kernel", "bias", "unused"}
    assert {path: row.kind for path, row in rows.items()} == {
        "embed": "lookup", "kernel": "dense", "bias": "leaf", "unused": "unused"
    }  # fmt: skip
    kernel = rows["kernel"]
    assert (kernel.n, kernel.t, kernel.d, kernel.p) == (1, 3, 4, 5)
    assert re.search(r"explain_test.py:\d+", kernel.uses[0])
    assert "add at" in rows["bias"].why
    assert rows["unused"].why == "the loss does not depend on it"


def test_numbers_are_per_batch():
    explanation = explain(routes={"kernel": "ghost"})
    kernel = next(row for row in explanation.rows if row.path == "kernel")
    assert explanation.batch_size == 8
    assert explanation.non_private_flops == 8 * 6 * 3 * 4 * 5
    assert kernel.extra_flops["ghost"] == 8 * 3 * 4 * 9
    assert set(kernel.extra_flops) == set(kernel.extra_bytes) == {"ghost", "fused", "store", "leaf"}
    assert explanation.extra_flops == sum(
        row.extra_flops.get(row.route, 0) for row in explanation.rows
    )
    total = explanation.non_private_flops + explanation.extra_flops
    assert kernel.share == kernel.extra_flops["ghost"] / total
    assert explanation.flops_ratio == total / explanation.non_private_flops


def test_text():
    lines = explain(routes={"kernel": "ghost"}).table(wide=True).splitlines()
    assert lines[0].split() == (
        [
            "parameter",
            "shape",
            "kind",
            "N",
            "T",
            "d",
            "p",
            "route",
            "extra",
            "flop",
            "share",
            "ms",
            "why",
            "used",
            "at",
        ]
    )
    assert set(lines[1]) == {"-"}
    (kernel,) = [line for line in lines if line.startswith("kernel")]
    cells = re.split(r"  +", kernel)
    assert cells[:8] == ["kernel", "4x5", "dense", "1", "3", "4", "5", "ghost"]
    assert cells[8] == "864"
    assert "8 examples: 2.88 kflop without privacy" in lines[-2]
    assert re.match(r"predicted: [\d.]+ ms without privacy, [\d.]+ ms with it \(", lines[-1])
    assert all(line == line.rstrip() for line in lines)


def test_seconds_add_up():
    """The rows, what both steps have in common, and the clip factors, which are no row's."""
    with_noise, without = explain(), explain(noise_multiplier=0.0)
    for found in (with_noise, without):
        extra = found.private_seconds - found.plain_seconds
        assert 0 < extra - sum(row.seconds for row in found.rows) < extra
        assert found.predicted_ratio == found.private_seconds / found.plain_seconds
    assert with_noise.private_seconds > without.private_seconds
    assert with_noise.plain_seconds == without.plain_seconds
    noise = {row.path: row.seconds for row in with_noise.rows}["unused"]
    assert noise > 0 == {row.path: row.seconds for row in without.rows}["unused"]


def test_a_traced_noise_multiplier_counts_as_noise():
    def with_noise(sigma):
        found.append(explain(noise_multiplier=sigma).private_seconds)
        return sigma

    found = []
    jax.eval_shape(with_noise, jnp.float32(1.0))
    assert found == [explain().private_seconds]


def test_a_second_back_propagation_takes_its_time():
    one, two = (explain(method=name, noise_multiplier=0.0) for name in ("bk", "ghost_clip"))
    assert one.plain_seconds == two.plain_seconds
    assert two.private_seconds > one.private_seconds


def test_the_loss_is_traced_once():
    calls = []

    def counted(params, ids):
        calls.append(1)
        return loss(params, ids)

    bk_jax.dp_value_and_grad(counted).explain(PARAMS, IDS)
    assert len(calls) == 1


def test_json_has_everything():
    explanation = explain()
    data = json.loads(explanation.to_json())
    assert data["batch_size"] == 8
    assert [row["path"] for row in data["rows"]] == [row.path for row in explanation.rows]
    assert data["warnings"] == []


def test_notebook_table_escapes_what_the_user_wrote():
    grad_fn = bk_jax.dp_value_and_grad(lambda params, x: jnp.sum(x @ params["<w>"]))
    html = grad_fn.explain({"<w>": count_up(3, 2)}, count_up(4, 3))._repr_html_()
    assert "<td>&lt;w&gt;</td>" in html
    assert "<td><w></td>" not in html
    assert html.count("<tr>") == 2
    assert "<i style=" in html  # bars
    assert "flop without privacy" in html


def test_routes_of_a_parameter_in_several_parts():
    def parts(params, x):
        return jnp.sum(x @ params["w"][:, :2]) + jnp.sum(jnp.tanh(x @ params["w"][:, 2:]))

    x = jax.ShapeDtypeStruct((2, 2000, 4), jnp.float32)
    assert bk_jax.dp_value_and_grad(parts).explain({"w": count_up(4, 5)}, x).routes() == {
        "w": "store"
    }


def test_parameters_joined_in_one_weight_are_priced_once():
    def joined(params, x):
        return jnp.sum(x @ jnp.concatenate([params["a"], params["b"]], 1))

    params = {"a": count_up(3, 2), "b": count_up(3, 4)}
    first, second = bk_jax.dp_value_and_grad(joined).explain(params, count_up(4, 3)).rows
    assert first.extra_flops
    assert second.extra_flops == {}
    assert second.why == "one weight with a"


def test_a_large_parameter_that_is_tapped_gives_a_warning():
    def opaque(w, x):
        return jnp.sum(x @ jnp.cumsum(w, 0))

    large, small = jax.ShapeDtypeStruct((256, 256), jnp.float32), count_up(16, 16)
    grad_fn = bk_jax.dp_value_and_grad(opaque)
    (warning,) = grad_fn.explain(
        {"w": large}["w"], jax.ShapeDtypeStruct((8, 256), "float32")
    ).warnings
    assert re.search(r"\(256x256\) is tapped whole, which keeps 2.1 MB per batch: used by cumsum at "
                     r".*explain_test.py:\d+", warning)  # fmt: skip
    assert not grad_fn.explain(small, count_up(8, 16)).warnings
    found = grad_fn.explain(large, jax.ShapeDtypeStruct((8, 256), "float32"))
    assert f"warning: {warning}" in found.table(wide=True)
    assert f"warning: {warning}" in " ".join(str(found).split())


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_explained(method):
    assert set(explain(method=method).routes()) == {"embed", "kernel", "bias", "unused"}
