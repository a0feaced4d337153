"""Plans for devices: routes change where their data sheets say, and for the device that is meant."""

import dataclasses
import pathlib
import types

import jax
import numpy as np
import pytest

import bk_jax
from bk_jax import _compat
from bk_jax.planning import device_seconds
from bk_jax.planning.cost import LayerCost, Patches
from bk_jax.planning.default_rates import AVX512, nominal_rates
from bk_jax.planning.device_seconds import SHARE, padded, route_seconds, tile_side
from bk_jax.planning.devices import DEVICES, find_device
from bk_jax.planning.fastest import fastest_route
from bk_jax.planning.target import gpu_kind, planning_rates

# Bytes of an element, width of a square layer that computes more than it reads, tokens.
BREAK_EVEN = [("A100", 4, 448, 401), ("A100", 2, 768, 803), ("H100", 2, 1152, 1181)]
H100 = "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(("kind", "itemsize", "width", "tokens"), BREAK_EVEN)
def test_gradients_are_stored_from_the_break_even_on(kind, itemsize, width, tokens):
    assert round(find_device(kind).stored_pays(itemsize)) == tokens

    def route(t):
        cost = LayerCost(1, t, width, width, kept_itemsize=itemsize)
        return fastest_route(cost, nominal_rates(kind)).route

    assert route(tokens // 16 * 16 - 3) == "fused"
    assert route(tokens + 20) == "store"
    assert route(tokens // 4) == "ghost"


def test_the_cpu_changes_elsewhere():
    cost = LayerCost(1, 780, 768, 768)
    assert fastest_route(cost, AVX512).route == "store"
    assert fastest_route(LayerCost(1, 450, 768, 768), AVX512).route == "store"
    assert fastest_route(LayerCost(1, 450, 768, 768), nominal_rates("A100")).route == "ghost"


@pytest.mark.parametrize(
    ("copies", "rows", "columns", "itemsize", "side"),
    [(216, 100, 100, 2, 128), (215, 100, 100, 2, 64), (54, 129, 200, 2, 128), (1000, 64, 4096, 2, 64),
     (1000, 65, 65, 2, 128), (1000, 4096, 4096, 4, 64)],
)  # fmt: skip
def test_tiles_have_the_side_of_the_kernels(copies, rows, columns, itemsize, side):
    """As TileSide in custom_calls/cuda/tiling.h; float32 has small ones."""
    assert tile_side(copies, rows, columns, itemsize) == side


def test_numbers_of_the_kernels_are_those_of_their_headers():
    folder = pathlib.Path(__file__).parents[2] / "custom_calls" / "cuda"
    text = (folder / "tiling.h").read_text() + (folder / "clipped_gemm.cu").read_text()
    for name, value in {
        "kLargeSide": device_seconds.LARGE, "kSmallSide": device_seconds.SMALL,
        "enough_large_tiles": device_seconds.ENOUGH_LARGE, "kMaxShares": device_seconds.MOST_SHARES,
        "kMinRows": device_seconds.LEAST_ROWS,
    }.items():  # fmt: skip
        assert f"{name} = {value};" in text


def test_tokens_cost_whole_tiles():
    device = find_device("A100")

    layers = [LayerCost(1, t, 4096, 4096) for t in (577, 600, 640)]  # ten tiles each way

    def norm(cost):
        both = [route_seconds(cost, route, 8, device) for route in ("ghost", "fused")]
        each = 2 * 8 * padded(cost.t, 16) * 4096**2 / (SHARE * device.tf32) + device.launch
        return both[0] - both[1] + each

    assert norm(layers[0]) == pytest.approx(norm(layers[1]), rel=1e-9)
    assert norm(layers[0]) == pytest.approx(norm(layers[2]), rel=1e-9)


@pytest.mark.parametrize("kind", ["A100", "H100", "B200"])
def test_rows_that_are_not_aligned_have_the_route_of_others(kind):
    """GPT2's head of 1024 tokens, in 16 bits filled up to whole vectors of eight."""

    def choice(words, itemsize):
        cost = LayerCost(1, 1024, 768, words, kept_itemsize=itemsize)
        return fastest_route(cost, nominal_rates(kind)).route

    assert choice(50257, 2) == choice(50264, 2) == "ghost"
    assert choice(50257, 4) == choice(50260, 4) == "store"


@pytest.mark.parametrize(("route", "gradients"), [("ghost", 1), ("fused", 1), ("store", 8)])
def test_filling_rows_up_costs_a_copy(route, gradients):
    """The copy of the rows, gradients without their zeros, and two launches."""
    device = find_device("H100")
    sizes = [(1024, 768, words) for words in (50257, 50264)]
    odd, even = (
        route_seconds(LayerCost(1, *size, kept_itemsize=2), route, 8, device) for size in sizes
    )
    moved = 2 * 8 * 1024 * 2 * 50257 + 2 * gradients * 4 * 768 * 50257
    wanted = moved / (SHARE * device.memory) + 2 * device.launch
    assert odd - even == pytest.approx(wanted, rel=1e-2)
    short = (route_seconds(LayerCost(1, 1024, 768, p, kept_itemsize=2), route, 8, device)
             for p in (1001, 1008))  # fmt: skip
    assert next(short) <= next(short)


def test_a_product_takes_as_long_as_its_loads():
    device = find_device("B200")
    aligned, single = (
        route_seconds(LayerCost(1, 1024, size, size), "fused", 8, device) for size in (4160, 4097)
    )
    loads = 2 * 8 * 1024 * 4160 * 4160 / 64  # every element for each of the tiles beside it
    written = 4 * 4097**2 / (SHARE * device.memory)
    assert single - written == pytest.approx(2 * (loads / device.loads / SHARE + device.launch))
    assert single > 1.5 * aligned


def test_a_shared_gram_matrix_is_computed_once():
    cost = LayerCost(1, 512, 1024, 1024)
    alone, shared = (
        route_seconds(cost, "ghost", 64, DEVICES[0], shares_gram=shares) for shares in (False, True)
    )
    assert shared < alone


def test_a_convolution_has_one_norm():
    cost = LayerCost(1, 3136, 576, 64, kept_d=64, pixel_d=64)
    ghost, fused = (route_seconds(cost, route, 8, DEVICES[0]) for route in ("ghost", "fused"))
    assert ghost == fused


def patched(t, d, p, parts, copied=True):
    patches = Patches(d, parts, copied)
    return LayerCost(1, t, d, p, kept_itemsize=2, kept_d=d / 9, pixel_d=d, patches=patches)


def test_patches_are_written_for_the_norm_and_for_the_sum():
    device, cost = find_device("A100"), patched(196, 1152, 256, 1)
    dense = LayerCost(1, 196, 1152, 256, kept_itemsize=2)
    made = 8 * 196 * 2 * (128 + 1152) / (SHARE * device.memory) + device.launch
    for route, times in (("ghost", 2), ("fused", 2), ("store", 1)):
        alone = route_seconds(dense, route, 8, device)
        assert route_seconds(cost, route, 8, device) == pytest.approx(alone + times * made)
        as_it_is = patched(196, 1152, 256, 1, copied=False)
        assert route_seconds(as_it_is, route, 8, device) == pytest.approx(alone)


def test_parts_cost_more_launches_and_have_fewer_tiles():
    """Of long images with few channels: a tile is the work of one multiprocessor."""
    device = find_device("A100")
    whole, parts = (route_seconds(patched(12544, 144, 64, n), "store", 64, device) for n in (1, 64))
    tile = 2 * 12544 * 64**2 * device.multiprocessors / (SHARE * device.bf16)
    assert parts > 64 * tile > whole


def test_gathered_pixels_have_half_of_the_units_of_an_h100():
    assert find_device("A100").gathering == 1
    device = find_device("H100")
    cost = LayerCost(1, 64, 4096, 4096, kept_d=4096, pixel_d=4096)
    flops = 2 * 2 * 64 * 4096 * 4096
    assert device_seconds.norm_seconds(cost, "fused", 2, device) == pytest.approx(
        flops / (SHARE * device.fp32 / 2) + device.launch
    )


def test_predictions_are_those_of_the_form_that_a_batch_has():
    cost = patched(196, 1152, 256, 4)
    assert cost.of_batch(4) == cost
    assert cost.of_batch(3) == dataclasses.replace(cost, patches=None)


# --- which device ---


def test_the_caller_decides_first(monkeypatch):
    monkeypatch.setattr(_compat, "mesh_device", lambda: types.SimpleNamespace(platform="cpu"))
    assert gpu_kind("H100") == "H100"
    assert gpu_kind("cpu") is None
    assert planning_rates("H100").device == find_device(H100)
    assert planning_rates("cpu") is AVX512


@pytest.mark.parametrize("platform", ["gpu", "cuda"])
def test_then_the_mesh(monkeypatch, platform):
    device = types.SimpleNamespace(platform=platform, device_kind=H100)
    monkeypatch.setattr(_compat, "mesh_device", lambda: device)
    assert gpu_kind() == H100
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    device.platform = "cpu"
    assert gpu_kind() is None


def test_a_mesh_says_what_its_devices_are():
    assert _compat.mesh_device() is None
    with jax.set_mesh(jax.make_mesh((1,), ("x",))):
        found = _compat.mesh_device()
    assert found is None or (found.platform, found.device_kind) == ("cpu", "cpu")


def test_then_the_default_device(monkeypatch):
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    with jax.default_device(jax.devices("cpu")[0]):
        assert gpu_kind() is None
    assert gpu_kind() == "cpu"  # the kind of the first device here, which a test calls a GPU


def test_explain_names_the_device_it_is_for():
    def loss(params, x):
        return ((x @ params["w"]) ** 2).sum()

    arguments = {"w": np.ones((768, 768), np.float32)}, np.ones((2, 450, 768), np.float32)
    here, there = (
        bk_jax.dp_value_and_grad(loss, device=device).explain(*arguments)
        for device in ("cpu", "A100")
    )
    assert here.routes() == {"w": "store"}
    assert there.routes() == {"w": "ghost"}
    assert there.rates == "nominal for an A100 GPU, computed, not measured"
    assert "AVX" in here.rates or "calibrated" in here.rates
    assert there.private_seconds < here.private_seconds
