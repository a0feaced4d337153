"""Methods: the rule of the paper at its threshold, and the costs of a layer."""

import pytest

from bk_jax.planning.cost import LayerCost
from bk_jax.planning.methods import METHODS, get_method

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


def test_a_convolution_keeps_images_and_multiplies_channels():
    cost = LayerCost(1, 20, 900, 100, kept_d=99, pixel_d=100)
    assert cost.extra_flops("ghost") == 20 * 21 * 200
    assert cost.kept_bytes == 4 * 20 * (100 + 99)
    assert cost.is_conv
    assert not LONG.is_conv
