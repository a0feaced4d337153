"""Methods: the rule of the paper and ours, at their thresholds."""

import pytest

from bk_jax.planning.cost import GramCost, LayerCost
from bk_jax.planning.methods import METHODS, choose_auto, get_method

# p d = 200: 2 T^2 = 162 < 200 for T = 9, and 2 T^2 = 200 for T = 10.
SHORT, LONG = LayerCost(1, 9, 20, 10), LayerCost(1, 10, 20, 10)

PAPER = {  # method: routes of the short and of the long layer, second back-propagation
    "bk": ("ghost", "ghost", False),
    "bk_mix_ghost_clip": ("ghost", "fused", False),
    "bk_mix_opt": ("ghost", "store", False),
    "ghost_clip": ("ghost", "ghost", True),
    "mix_ghost_clip": ("ghost", "fused", True),
    "fast_grad_clip": ("fused", "fused", True),
}


@pytest.mark.parametrize("name", PAPER)
def test_methods_of_the_paper(name):
    method = get_method(name)
    short, long, twice = PAPER[name]
    assert method.choose(SHORT).route == short
    assert method.choose(LONG).route == long
    assert method.second_backward == twice
    assert not method.tap_everything


def test_the_rule_of_the_paper_says_its_numbers():
    assert METHODS["bk_mix_opt"].choose(SHORT).why == "2 T^2 = 162 < p d = 200"
    assert METHODS["bk_mix_opt"].choose(LONG).why == "2 T^2 = 200 >= p d = 200"


def test_methods_that_instantiate_everything():
    assert {n for n, m in METHODS.items() if m.tap_everything} == {"opacus", "tf_privacy"}
    assert {n for n, m in METHODS.items() if m.loop} == {"tf_privacy"}


def test_no_method_is_untested():
    assert set(METHODS) == {"auto", "opacus", "tf_privacy", *PAPER}


def test_unknown_method():
    with pytest.raises(ValueError, match=r"method must be one of auto, bk, .*; got 'ghots'"):
        get_method("ghots")


@pytest.mark.parametrize(
    ("t", "route"),
    [(1, "ghost"), (49, "ghost"), (50, "store"), (1000, "store")],  # h = 50; pd <= T (p + d)
)
def test_auto_in_single_precision(t, route):
    assert choose_auto(LayerCost(1, t, 100, 100)).route == route


@pytest.mark.parametrize(
    ("t", "route"),  # gradients take twice the bytes of what is kept: neutral from T = 2 h on
    [(49, "ghost"), (50, "ghost"), (99, "ghost"), (100, "store")],
)
def test_auto_does_not_trade_memory_for_time(t, route):
    assert choose_auto(LayerCost(1, t, 100, 100, kept_itemsize=2)).route == route


def test_auto_fuses_long_layers_that_are_kept_in_one_byte():
    cost = LayerCost(1, 150, 100, 100, kept_itemsize=1)
    choice = choose_auto(cost)
    assert (choice.route, choice.why) == (
        "fused", "T = 150 >= 2 h = 100 and storing would need more memory"
    )  # fmt: skip


def test_costs_by_mental_arithmetic():
    cost = LayerCost(n=2, t=3, d=5, p=7)
    assert cost.non_private_flops == 6 * 2 * 3 * 5 * 7
    assert cost.kept_bytes == 2 * 3 * 12 * 4
    assert cost.stored_bytes == 2 * 35 * 4
    assert cost.extra_flops("ghost") == 2 * 3 * 4 * 12
    assert cost.extra_flops("fused") == 2 * 3 * 70 + 2 * 70
    assert cost.extra_flops("store") == cost.extra_flops("leaf") == 4 * 70
    assert cost.extra_flops("sparse") == 4 * 2 * 3 * 7
    assert [cost.extra_bytes(r) for r in ("ghost", "fused", "sparse", "leaf")] == [0, 0, 0, 280]
    assert cost.extra_bytes("store") == 0  # 280 replace 288 bytes of activations and gradients
    with pytest.raises(ValueError, match="unknown route 'gost'"):
        cost.extra_flops("gost")


@pytest.mark.parametrize(
    ("t", "kept_d", "route"),
    [
        (449, 100, "ghost"),  # h = p d / (p + channels) = 450
        (450, 100, "store"),  # 90000 numbers either way
        (450, 99, "ghost"),
        (539, 10, "ghost"),
        (540, 10, "fused"),  # 2 * 0.6 h
    ],
)
def test_auto_counts_what_a_convolution_keeps_and_multiplies(t, kept_d, route):
    cost = LayerCost(1, t, 900, 100, kept_d=kept_d, gram=GramCost(100, 0.6))
    assert choose_auto(cost).route == route
    assert cost.extra_flops("ghost") == t * (t + 1) * 200
    assert cost.kept_bytes == 4 * t * (100 + kept_d)
