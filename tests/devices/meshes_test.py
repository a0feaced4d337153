"""Eight devices: the same results as on one, and no more sent around than in ordinary training."""

from __future__ import annotations

import collections
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.documents import ROOT, python_blocks
from support.process import PACKAGE, TESTS
from support.quick import FLAGS
from support.tolerance import eps

MODELS = ("transformer", "resnet", "experts")
LAYOUTS = ("data", "fsdp", "tensor")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one process with eight devices found out."""
    path = tmp_path_factory.mktemp("eight") / "found.json"
    program = Path(__file__).with_name("eight.py")
    environment = os.environ | {
        "XLA_FLAGS": " ".join(["--xla_force_host_platform_device_count=8", *FLAGS]),
        "JAX_CHECK_TRACER_LEAKS": "0",  # it compiles eager operations at every call
        "PYTHONPATH": os.pathsep.join(map(str, (PACKAGE, TESTS))),
    }
    result = subprocess.run(
        [sys.executable, str(program), str(path)],
        env=environment, capture_output=True, text=True, timeout=3000, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return json.loads(path.read_text())


def assert_equal_to_rounding(many: dict[str, Any], one: dict[str, Any]) -> None:
    """Sums over a few hundred products, in another order."""
    assert many.keys() == one.keys()
    for path, values in one.items():
        scale = max(1.0, np.abs(values).max())
        tolerance = 64 * eps(np.float32) * scale
        np.testing.assert_allclose(many[path], values, rtol=0, atol=tolerance, err_msg=path)


def nbytes(collectives: list[Any], *, kind: str | None = None) -> int:
    return sum(c["bytes"] for c in collectives if kind in (None, c["kind"]))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("model", MODELS)
def test_results_are_those_of_one_device(found, model, layout):
    """Value, gradients with their noise, and what is known of each example."""
    assert_equal_to_rounding(found[model][layout]["results"], found[model]["one"])


@pytest.mark.parametrize("model", MODELS)
def test_data_parallel_steps_send_gradients_and_three_numbers(found, model):
    """Nothing but all-reduces, of the parameters' sizes; the loss and two counts are numbers."""
    private = found[model]["data"]["private"]
    sizes = collections.Counter(int(np.prod(c["dims"])) for c in private)
    gradients = [len(v) for path, v in found[model]["one"].items() if path.startswith("[1]")]
    assert {c["kind"] for c in private} == {"all-reduce"}
    assert sizes == collections.Counter([*gradients, 1, 1, 1])
    plain = found[model]["data"]["plain"]
    assert {c["kind"] for c in plain} == {"all-reduce"}
    assert nbytes(private) <= nbytes(plain) + 2 * 4


@pytest.mark.parametrize("model", MODELS)
def test_fsdp_gathers_parameters_and_scatters_sums(found, model):
    """Clipped sums go straight to the device that keeps that part, as a reduce-scatter."""
    private, plain = (found[model]["fsdp"][which] for which in ("private", "plain"))
    ours = [c for c in private if "bk.sum" in c["name"]]
    assert {c["kind"] for c in ours} == {"reduce-scatter"}
    gradients = [len(v) for path, v in found[model]["one"].items() if path.startswith("[1]")]
    assert nbytes(ours) == sum(gradients)  # a quarter of 4 bytes each
    assert nbytes(private, kind="all-gather") <= nbytes(plain, kind="all-gather")
    assert nbytes(private, kind="all-to-all") == nbytes(plain, kind="all-to-all") == 0


@pytest.mark.parametrize("model", MODELS)
def test_tensor_parallel_steps_send_norms_besides(found, model):
    """Two numbers for each of a device's examples; all else is what ordinary training sends."""

    def counted(collectives: list[Any]) -> collections.Counter[Any]:
        return collections.Counter((c["kind"], int(np.prod(c["dims"]))) for c in collectives)

    result = found[model]["tensor"]
    more = counted(result["private"]) - counted(result["plain"])
    examples = {"transformer": 4, "resnet": 2, "experts": 4}[model]
    stored = {"transformer": 0, "resnet": 0, "experts": 1}[
        model
    ]  # a weight whose gradients are kept
    norms = {("all-reduce", 2 * examples): 1 + stored}
    assert more == collections.Counter({**norms, ("all-reduce", 1): 2})


def test_inner_axes_of_weights_are_cut_as_well(found):
    """Heads in the middle of a weight, groups inside a stack of layers: nothing is gathered for them."""
    result = found["stacked"]["tensor"]
    assert_equal_to_rounding(result["results"], found["stacked"]["one"])
    private, plain = result["private"], result["plain"]
    assert {c["kind"] for c in private} == {c["kind"] for c in plain}
    assert nbytes(private, kind="all-gather") == nbytes(plain, kind="all-gather")
    sums = [c for c in private if "bk.sum" in c["name"] and c["dims"]]
    gradients = [len(v) for path, v in found["stacked"]["one"].items() if path.startswith("[1]")]
    assert nbytes(sums) == sum(gradients)  # a quarter of 4 bytes each


def test_products_of_layouts(found):
    """FSDP of what tensor parallelism left: sums are scattered, norms are one small sum."""
    result = found["transformer"]["product"]
    assert_equal_to_rounding(result["results"], found["transformer"]["one"])
    private, plain = result["private"], result["plain"]
    assert nbytes(private, kind="all-gather") <= nbytes(plain, kind="all-gather")
    assert nbytes(private, kind="all-to-all") <= nbytes(plain, kind="all-to-all")
    sums = [c for c in private if "bk.sum" in c["name"] and c["dims"]]
    whole = [c for c in sums if c["kind"] != "reduce-scatter"]
    assert [(c["kind"], c["dims"]) for c in whole] == [("all-reduce", [16])]  # half of a bias
    norms = [c for c in private if c["ours"] and c not in sums and c["dims"]]
    assert [(c["kind"], c["dims"]) for c in norms] == [("all-reduce", [2, 2])]


ALL = [*((model, layout) for model in MODELS for layout in LAYOUTS)]


@pytest.mark.parametrize(
    ("model", "layout"), [*ALL, ("transformer", "product"), ("stacked", "tensor")]
)
def test_lint_has_nothing_to_say(found, model, layout):
    assert found[model][layout]["lint"]["code"] == 0, found[model][layout]["lint"]["said"]


def test_lint_fails_a_program_that_gathers_examples(found):
    """The same step, right but not partitioned: activations go to all devices for norms and sums."""
    bad = found["others"]["bad"]
    assert_equal_to_rounding(bad["results"], found["experts"]["one"])
    assert bad["lint"]["code"] == 1
    for what in ("bk.norm[up]", "bk.sum[up]"):
        gathers = rf"all-gather .* for .*{re.escape(what)}.*: examples leave their device"
        assert re.search(gathers, bad["lint"]["said"])


def test_twins_are_cut_as_the_custom_calls_are(found):
    twins, native = found["others"]["twins"], found["transformer"]["tensor"]
    assert_equal_to_rounding(twins["results"], native["results"])
    kinds = [
        collections.Counter((c["kind"], *c["dims"]) for c in result["private"])
        for result in (twins, native)
    ]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize(("which", "meshes"), [("noise", 6), ("twin noise", 2)])
def test_noise_has_the_same_bits_on_any_mesh(found, which, meshes):
    same = found["others"][which]
    assert len(same) == meshes * 5  # arrays
    assert all(same)


CUTS = {
    "d": {"all-reduce"},
    "p": {"all-reduce"},
    "d and p by different devices": {"all-reduce"},
    "d and p by the same devices": {"all-reduce", "all-gather"},  # of the smaller one
    "t": {"all-to-all", "all-gather"},  # whole examples instead of positions, and B numbers back
    "t and p": {"all-reduce", "all-gather"},
}


@pytest.mark.parametrize("form", ["ghost", "direct"])
@pytest.mark.parametrize("cut", CUTS)
def test_norms_of_small_integers_are_exact_however_they_are_cut(found, cut, form):
    """The parts of a gradient matrix add up; positions do not, nor do blocks of its diagonal."""
    norms = found["others"]["norms"]
    result, truth = norms[f"{cut}, {form}"], np.asarray(norms["truth"])
    np.testing.assert_array_equal(result["estimate"], truth)
    assert np.all(np.asarray(result["upper"]) >= truth)
    assert np.all(np.asarray(result["upper"]) <= 1.001 * truth)
    assert {c["kind"] for c in result["collectives"]} == CUTS[cut]


def test_positions_of_a_cut_sequence_are_exchanged_not_gathered(found):
    sent = found["others"]["norms"]["t, ghost"]["collectives"]
    assert max(c["bytes"] for c in sent if c["kind"] == "all-gather") == 4 * 4  # one per example


def test_a_tied_table_is_added_up_once_however_it_is_wanted(found):
    """Only one of the two parts of the sum is spread over the devices that keep the table."""
    assert len(found["others"]["tied"]) == 4
    assert set(found["others"]["tied"].values()) == {0.0}


def test_microbatches_stay_on_their_devices(found):
    result = found["others"]["microbatches"]
    assert_equal_to_rounding(result["results"], found["experts"]["one"])
    assert {c["kind"] for c in result["private"]} == {"all-reduce"}


def test_a_mesh_of_explicit_axes(found):
    result = found["others"]["explicit"]
    assert_equal_to_rounding(result["results"], found["experts"]["one"])
    assert {c["kind"] for c in result["private"]} == {"all-reduce"}


@pytest.mark.parametrize("which", ["results", "microbatches", "partly"])
def test_inside_shard_map(found, which):
    """Examples and experts by hand: norms, sums and noise are those of one device."""
    assert_equal_to_rounding(found["others"]["mapped"][which], found["experts"]["one"])


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("unchecked", "check_vma=False nobody knows which devices have examples of their own"),
        ("mixes", "one example could change another's gradient"),
        ("own keys", "the key differs along ['data']: noise would be drawn on every device"),
        ("parts", "parameter 'gate' differs between devices along ['data']"),
        ("differs", r"Add the parts up inside the loss: jax.lax.psum(loss, ['model'])"),
    ],
)
def test_what_shard_map_refuses(found, case, message):
    assert message in found["others"]["mapped"][case]


def test_the_recipes_of_the_page_run(found):
    blocks = len(python_blocks(ROOT / "docs" / "devices.md"))
    assert found["others"]["pages"] == {"devices.md": blocks}
    assert blocks == 4  # a model, and three ways to spread it


def ring(collectives: list[Any], devices: int) -> float:
    """Bytes that one device sends in rings of so many devices, from the bytes of its results."""
    rounds = {"all-reduce": 2 / devices, "reduce-scatter": 1}  # a part of the array each
    return sum(rounds[c["kind"]] * (devices - 1) * c["bytes"] for c in collectives)


def gradient_bytes(parameters: float, data: int, model: int) -> float:
    """The page's model of an all-reduce of gradients."""
    return 8 * (data - 1) / data * parameters / model


def norm_bytes(examples: int, data: int, model: int) -> float:
    """The page's model of the sum of norms."""
    return 16 * (model - 1) / model * examples / data


def parameters(one: dict[str, Any]) -> int:
    return sum(len(values) for path, values in one.items() if path.startswith("[1]"))


def sums_of(collectives: list[Any]) -> list[Any]:
    """Those of clipped sums; a number that was combined with them is the loss."""
    return [c for c in collectives if "bk.sum" in c["name"] and c["dims"]]


@pytest.mark.parametrize("model", MODELS)
def test_the_pages_model_of_gradients_has_the_bytes_of_the_programs(found, model):
    """All-reduce: 8 (D-1)/D P; reduce-scatter: half of it."""
    count = parameters(found[model]["one"])
    data, fsdp = (found[model][layout]["private"] for layout in ("data", "fsdp"))
    size = {"transformer": 8, "resnet": 2, "experts": 8}[model]
    everything = [c for c in data if c["dims"]]
    assert ring(everything, size) == gradient_bytes(count, size, 1)
    assert ring(sums_of(fsdp), 4) == gradient_bytes(count, 4, 1) / 2


def test_the_pages_model_of_norms_has_the_bytes_of_the_programs(found):
    """Layers in parts on 2 x 4 devices, of 8 examples."""
    one, private = found["stacked"]["one"], found["stacked"]["tensor"]["private"]
    sums = sums_of(private)
    assert ring(sums, 2) == gradient_bytes(parameters(one), 2, 4)
    norms = [c for c in private if c["ours"] and c["dims"] and c not in sums]
    stored = 1  # the groups
    assert ring(norms, 4) == (1 + stored) * norm_bytes(8, 2, 4)


def test_the_pages_table_of_accelerators_follows_its_model():
    """7 billion parameters, 4096 examples, at 8, 64 and 1024 accelerators."""
    text = (ROOT / "docs" / "devices.md").read_text()
    rows = re.findall(
        r"^\| (\d+) \| (\d+) x (\d+) \| (.+) GB \| (.+) \| (.+) \|$", text, re.MULTILINE
    )
    assert [int(row[0]) for row in rows] == [8, 64, 1024]
    units = {"": 1, "B": 1, "kB": 1e3}
    for accelerators, data, model, gradients, norms, share in rows:
        sizes = int(data), int(model)
        assert int(accelerators) == sizes[0] * sizes[1]
        sent, more = gradient_bytes(7e9, *sizes), norm_bytes(4096, *sizes)
        number, _, unit = norms.partition(" ")
        assert f"{sent / 1e9:.2g}" == gradients
        assert float(number) * units[unit] == pytest.approx(more, rel=0.01)
        assert float(share) == pytest.approx(more / sent, rel=0.05)


TOGETHER = {  # layers of each call for norms and for sums; jit traces the whole before the parts
    "jit, data": ([4, 4, 4, 4], []),
    "jit, half of the layers in parts": ([4, 4, 2, 2, 2, 2], []),
    "map, data": ([4, 4], [4, 4]),
    "map, layers in parts": ([4, 4], [4, 4]),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("way", TOGETHER)
def test_layers_of_one_shape_come_together_where_they_are_cut_alike(found, way, dtype):
    """As planned for a GPU. One by one: sums that XLA divides among devices, and those of float32."""
    result = found["others"]["equal"][f"{way}, {dtype}"]
    rounding = {"float32": eps(np.float32), "bfloat16": 2.0**-7}[dtype]
    assert result["error"] <= 16 * rounding * result["largest"]
    norms, sums = TOGETHER[way]
    assert result["ghost_norms"] == norms
    assert result["clipped_gemms"] == (sums if dtype == "bfloat16" else [])


@pytest.mark.parametrize("route", ["ghost", "fused", "store"])
@pytest.mark.parametrize("way", ["jit", "map"])
def test_convolutions_from_patches_on_parts_of_channels(found, way, route):
    """As planned for a GPU, in two parts of each device's examples."""
    result = found["others"]["patches"][f"{way}, {route}"]
    assert result["error"] <= 16 * 2.0**-7 * result["largest"]
    assert result["made"] >= (2 if route == "store" else 4)


def test_a_users_own_vmap(found):
    one, two, *both = found["others"]["vmapped"]
    np.testing.assert_allclose(both, [one, two], rtol=1e-6)
