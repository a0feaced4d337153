"""Fastest routes: the least time that there is memory for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bk_jax.planning import machine_rates
from bk_jax.planning.cost import LayerCost
from bk_jax.planning.default_rates import AVX512
from bk_jax.planning.fastest import BATCH_SIZE, SPARE, SUMMED, fastest_route
from bk_jax.planning.layer_seconds import route_seconds


def seconds(cost, route):
    return route_seconds(cost, route, BATCH_SIZE, AVX512)


@pytest.mark.parametrize(
    ("t", "route"),  # p d = 50 (p + d), and an eighth is spare
    [(1, "ghost"), (40, "ghost"), (44, "fused"), (45, "store"), (1000, "store")],
)
def test_a_gradient_is_stored_where_there_is_memory(t, route):
    assert fastest_route(LayerCost(1, t, 100, 100)).route == route


@pytest.mark.parametrize(
    ("t", "route"),  # gradients take twice the bytes of what is kept
    [(40, "ghost"), (50, "fused"), (88, "fused"), (89, "store")],
)
def test_memory_is_not_traded_for_time(t, route):
    assert fastest_route(LayerCost(1, t, 100, 100, kept_itemsize=2)).route == route


def test_a_long_layer_that_is_kept_in_one_byte_is_fused():
    cost = LayerCost(1, 150, 100, 100, kept_itemsize=1)  # three times the flops of a gradient
    assert fastest_route(cost).route == "fused"


sizes = st.integers(0, 1000)
pixels = st.none() | st.integers(1, 500)
dense = st.builds(LayerCost, st.integers(1, 3), sizes, sizes, sizes, st.sampled_from([2, 4]))
conv = st.builds(LayerCost, st.integers(1, 3), sizes, sizes, sizes, kept_d=sizes, pixel_d=pixels)


@given(dense | conv)
def test_no_route_that_fits_is_faster(cost):
    chosen = fastest_route(cost).route
    fit = [route for route in SUMMED if cost.extra_bytes(route) <= SPARE * cost.kept_bytes]
    assert chosen in fit
    assert seconds(cost, chosen) == min(seconds(cost, route) for route in fit)


def test_a_calibration_does_not_change_the_choice(monkeypatch):
    """Processes of one run must compile one program, whoever was calibrated."""

    def refuse():
        raise AssertionError("routes depend on the machine")

    monkeypatch.setattr(machine_rates, "current_rates", refuse)
    monkeypatch.setattr(machine_rates, "_default_rates", refuse)
    assert fastest_route(LayerCost(1, 1000, 100, 100)).route == "store"


def test_reasons_are_times_over_a_plain_gradient():
    short, long = (fastest_route(LayerCost(1, t, 400, 400)).why for t in (100, 1000))
    assert short.startswith("ghost 1.")
    assert short.endswith(" x plain; too large to store")
    assert long.startswith("store 1.")
    assert long.endswith(" x plain")
