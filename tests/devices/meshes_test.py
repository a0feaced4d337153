"""Eight devices: the same results as on one, and no more sent around than in ordinary training."""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.process import PACKAGE, TESTS
from support.tolerance import eps

MODELS = ("transformer", "resnet", "experts")
LAYOUTS = ("data", "fsdp", "tensor")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one process with eight devices found out."""
    path = tmp_path_factory.mktemp("eight") / "found.json"
    program = Path(__file__).with_name("eight.py")
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
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


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("model", MODELS)
def test_lint_has_nothing_to_say(found, model, layout):
    assert found[model][layout]["lint"] == []


def test_twins_are_cut_as_the_custom_calls_are(found):
    twins, native = found["others"]["twins"], found["transformer"]["tensor"]
    assert_equal_to_rounding(twins["results"], native["results"])
    kinds = [
        collections.Counter((c["kind"], *c["dims"]) for c in result["private"])
        for result in (twins, native)
    ]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("which", ["noise", "twin noise"])
def test_noise_has_the_same_bits_on_any_mesh(found, which):
    same = found["others"][which]
    assert len(same) == 6 * 3 * 3
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


def test_microbatches_stay_on_their_devices(found):
    result = found["others"]["microbatches"]
    assert_equal_to_rounding(result["results"], found["experts"]["one"])
    assert {c["kind"] for c in result["private"]} == {"all-reduce"}


def test_a_mesh_of_explicit_axes(found):
    result = found["others"]["explicit"]
    assert_equal_to_rounding(result["results"], found["experts"]["one"])
    assert {c["kind"] for c in result["private"]} == {"all-reduce"}


@pytest.mark.parametrize("which", ["results", "microbatches"])
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
    assert found["others"]["page"] == 4


def test_a_users_own_vmap(found):
    one, two, *both = found["others"]["vmapped"]
    np.testing.assert_allclose(both, [one, two], rtol=1e-6)
