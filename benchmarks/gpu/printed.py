"""What the paper printed about one A100 with 40 GB, and the models it was measured on."""

from __future__ import annotations

from typing import Any, NamedTuple


class Printed(NamedTuple):
    """Largest batch, and examples per second with it."""

    batch: int
    throughput: int


# The paper's table "GPT max throughput", by our names of methods.
PRINTED = {
    "gpt2": {
        "auto": Printed(149, 316), "none": Printed(157, 393),
        "ghost_clip": Printed(156, 242), "opacus": Printed(43, 139),
    },
    "gpt2-medium": {
        "auto": Printed(69, 141), "none": Printed(70, 172),
        "ghost_clip": Printed(70, 104), "opacus": Printed(15, 49),
    },
    "gpt2-large": {
        "auto": Printed(29, 70), "none": Printed(29, 85),
        "ghost_clip": Printed(29, 50), "opacus": Printed(5, 16),
    },
    "roberta-large": {
        "auto": Printed(41, 86), "none": Printed(51, 114),
        "ghost_clip": Printed(48, 64), "opacus": Printed(16, 50),
    },
    "beit-large": {
        "auto": Printed(96, 127), "none": Printed(98, 169),
        "ghost_clip": Printed(95, 93), "opacus": Printed(5, 3),
    },
}  # fmt: skip

# Models of benchmarks/steps/step_models and their sizes.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", {"length": 100}),
    "gpt2-medium": ("gpt2_medium", {"length": 100}),
    "gpt2-large": ("gpt2_large", {"length": 100}),
    "roberta-large": ("roberta_large", {"length": 256}),
    "beit-large": ("beit_large", {}),
}
