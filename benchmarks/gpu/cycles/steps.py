"""Steps: private over plain, predicted for whole models in bfloat16.

The plain step is its matrix products: forward, and the gradients of inputs and weights, by XLA at a
share of the peak (0.65 on an A100, 0.6 on others: an assumption), and those of attention. The private
step has the same but for the gradients of weights; in their place come norms and clipped sums of our
kernels, by the model, by the route that the planner chooses for each layer; the cross term of a tied
table; and noise, a launch for each large array and one for all small ones. Elementwise work, which both
steps have, is left out, so the ratios are rather too large. A convolution (BEiT's patches, side by side)
is a dense layer, its patches written for the norm and for the sum; the code before gathered pixels.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from benchmarks.gpu.cycles import architectures, kernels
from benchmarks.gpu.cycles.architectures import Architecture
from benchmarks.gpu.cycles.calls import ITEM, MOST_LAYERS, Calls, Dense
from benchmarks.paper.complexity import layers
from bk_jax.ops.gaussians import TOGETHER
from bk_jax.planning.cost import LayerCost
from bk_jax.planning.default_rates import nominal_rates
from bk_jax.planning.fastest import fastest_route

LIBRARY_SHARE = {"A100": 0.65, "H100": 0.6, "B200": 0.6}
MOST_ARRAYS = 512  # of one launch: kMaxNoiseArrays in custom_calls/cuda/gaussians.h
PAPER = "the paper, A100, float32"
FLASHDP = "FlashDP, Llama-13B, four A100, clipping by layer"
LLAMA_SIZES = (  # of each weight: d, p, how many
    ("query", 2048, 2048, 16), ("key_value", 2048, 512, 32), ("out", 2048, 2048, 16),
    ("gate_up", 2048, 8192, 32), ("down", 8192, 2048, 16), ("lm_head", 2048, 128256, 1),
)  # fmt: skip
LLAMA = layers.Model(
    "llama-1b",
    "Llama 3.2, 1.2 billion parameters",
    (
        layers.Layer("token", "embedding", 2048, 128256),
        *(
            layers.Layer(name, "dense", p, d, None, count, tied=name == "lm_head")
            for name, d, p, count in LLAMA_SIZES
        ),
    ),
)


class Case(NamedTuple):
    """A model, its batch and tokens, the blocks and width of its attention, and a printed ratio."""

    label: str
    model: str
    batch: int
    tokens: int
    blocks: int
    width: int
    goal: float | None = None
    printed: float | None = None
    source: str = ""


CASES = (
    Case("GPT2-small, T=100", "gpt2", 149, 100, 12, 768, 1.10, 393 / 316, PAPER),
    Case("GPT2-medium, T=100", "gpt2-medium", 69, 100, 24, 1024, 1.10, 172 / 141, PAPER),
    Case("GPT2-large, T=100", "gpt2-large", 29, 100, 36, 1280, 1.10, 85 / 70, PAPER),
    Case("GPT2-small, T=1024", "gpt2", 16, 1024, 12, 768, 1.20),
    Case("GPT2-medium, T=1024", "gpt2-medium", 8, 1024, 24, 1024, 1.20),
    Case("GPT2-large, T=1024", "gpt2-large", 4, 1024, 36, 1280, 1.20),
    Case("RoBERTa-large, T=256", "roberta-large", 41, 256, 24, 1024, None, 114 / 86, PAPER),
    Case(
        "BEiT-large, 197 tokens",
        "beit_large_patch16_224",
        96,
        197,
        24,
        1024,
        None,
        169 / 127,
        PAPER,
    ),
    Case("Llama-1B, T=2048", "llama-1b", 4, 2048, 16, 2048, None, 1 / 0.9, FLASHDP),
)


class Step(NamedTuple):
    """Milliseconds of both steps, and of the parts that privacy adds; the routes of layers."""

    plain: float
    norms: float
    sums: float
    noise: float
    replaced: float
    routes: dict[str, str]
    cross: float = 0.0  # of a tied table, among the norms

    @property
    def ratio(self) -> float:
        """Private over plain."""
        return 1 + (self.norms + self.sums + self.noise - self.replaced) / self.plain


def products_of(case: Case) -> list[tuple[layers.Layer, int]]:
    """Layers that multiply, with their tokens."""
    if case.model == "llama-1b":
        return [(one, case.tokens) for one in LLAMA.layers if one.kind == "dense"]
    tokens = None if case.model.startswith("beit") else case.tokens
    found = layers.read(case.model, tokens=tokens).multiplied()
    return [(one, one.t or case.tokens) for one in found]


def parameters(case: Case) -> int:
    """All of them: each is given noise."""
    model = LLAMA if case.model == "llama-1b" else layers.read(case.model)
    return layers.count_parameters(model).total


def arrays(case: Case) -> list[int]:
    """Elements of all weights and biases: each of them has a stream of noise."""
    model = LLAMA if case.model == "llama-1b" else layers.read(case.model)
    own = [one for one in model.layers if not one.tied]
    weights = [one.matrix for one in own for _ in range(one.count)]
    biases = [one.groups * one.p for one in own if one.bias for _ in range(one.count)]
    return weights + biases


def noise_launches(sizes: list[int]) -> int:
    """One for each large array, and one for all small ones."""
    large = sum(size > TOGETHER for size in sizes)
    return large + math.ceil((len(sizes) - large) / MOST_ARRAYS)


def library_seconds(flops: float, gpu: Architecture) -> float:
    """A product of XLA's."""
    return flops / (LIBRARY_SHARE[gpu.name] * gpu.peak_flops) + gpu.launch


def private_seconds(calls: Calls, layer: Dense, route: str, count: int) -> tuple[float, float]:
    """Norms and sums of `count` equal layers by a route."""
    whole = layer.filled() if calls.has_main_loop else layer
    added = count * calls.filling(layer)
    if route == "store":
        norm, total = calls.direct_norm(whole, written=4.0), calls.weighted_sum(whole)
        return count * norm + added, count * total
    together = launches(whole, count) if calls.has_main_loop else [(whole, count)]
    sums = sum(times * calls.clipped_sum(launched) for launched, times in together)
    if route == "fused":
        return count * calls.direct_norm(whole) + added, sums
    return sum(times * calls.ghost_norm(launched) for launched, times in together) + added, sums


def launches(layer: Dense, count: int) -> list[tuple[Dense, int]]:
    """What one launch has of equal layers, and how many such launches: parts of about one size."""
    parts = math.ceil(count / MOST_LAYERS)
    small, larger = divmod(count, parts)
    both = ((small, parts - larger), (small + 1, larger))
    return [(layer._replace(layers=size), times) for size, times in both if times]


def patches_side_by_side(calls: Calls, layer: layers.Layer, one: Dense) -> float:
    """Patches that are pieces of an image, written once: no larger than it."""
    if layer.kernel != layer.stride:
        raise ValueError(
            f"steps knows convolutions whose kernel is as large as their stride; {layer.name} has "
            f"{layer.kernel} and {layer.stride}. See images."
        )
    nbytes = float(ITEM * one.batch * one.tokens * one.d)
    return calls.patches(nbytes, nbytes)


def planned_route(layer: layers.Layer, tokens: int, gpu: Architecture) -> str:
    """Of the planner; a tied table has no direct norm."""
    cost = LayerCost(1, tokens, layer.d, layer.p, kept_itemsize=2)
    route = fastest_route(cost, nominal_rates(gpu.name)).route
    return "ghost" if layer.tied and route == "fused" else route


def predict(case: Case, calls: Calls) -> Step:
    """Both steps on the GPU of the calls, in milliseconds."""
    gpu = calls.gpu
    attention = 12.0 * case.batch * case.blocks * case.tokens**2 * case.width
    plain = library_seconds(attention, gpu)
    norms = sums = replaced = crosses = 0.0
    routes = {}
    for layer, tokens in products_of(case):
        one = Dense(case.batch, tokens, layer.d, layer.p)
        gradient = library_seconds(2.0 * case.batch * tokens * layer.d * layer.p, gpu)
        route = planned_route(layer, tokens, gpu)
        if layer.kind == "conv" and not calls.has_main_loop:
            route, norm = "convolution", layer.count * calls.convolution(one)
            total = norm
        else:
            norm, total = private_seconds(calls, one, route, layer.count)
        if layer.kind == "conv" and calls.has_main_loop:
            made = layer.count * patches_side_by_side(calls, layer, one)
            norm, total = norm + made, total + (made if route != "store" else 0.0)
        cross = calls.tied_cross(one) if layer.tied else 0.0
        plain += layer.count * 3 * gradient
        replaced += layer.count * gradient
        norms += norm + cross
        crosses += cross
        sums += total
        routes[layer.name] = route
    sizes = arrays(case)
    launched = noise_launches(sizes) if calls.has_main_loop else len(sizes)
    noise = calls.noise(parameters(case), launched)
    return Step(
        *(1e3 * part for part in (plain, norms, sums, noise, replaced)), routes, 1e3 * crosses
    )


def all_steps(label: str, gpu: str) -> list[tuple[Case, Step]]:
    """All cases with the kernels of `before` or `after`."""
    calls = Calls(kernels.recorded(label, gpu), architectures.find(gpu))
    return [(case, predict(case, calls)) for case in CASES]


def geometric_mean(ratios: list[float]) -> float:
    """Of several ratios."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))
