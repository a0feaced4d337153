"""Vision models of equimo, which are modules of Equinox, tiny.

SHViT is not here: its last norm is mapped over channels, which Equinox refuses for any size tried.
"""

from __future__ import annotations

from typing import Any

import equimo.models
import equinox as eqx
import jax

from zoo.entry import Entry, of_outputs, pixels


def entry(name: str, size: int = 16, **config: Any) -> Entry:
    """A loss of what the model, which takes one image, returns for all."""
    make = getattr(equimo.models, name)
    model = make(in_channels=3, num_classes=3, key=jax.random.key(0), **config)
    params, fixed = eqx.partition(model, eqx.is_inexact_array)

    def loss(params: Any, images: Any) -> Any:
        whole = eqx.combine(params, fixed)
        return of_outputs(jax.vmap(lambda image: whole(image, inference=True))(images))

    return Entry(loss, params, pixels(3, size, size))


def vit():
    sizes = {"img_size": 16, "patch_size": 8, "dim": 8, "num_heads": [2], "depths": [1]}
    return entry("VisionTransformer", **sizes, reg_tokens=1, init_values=0.5)


def conv_next():
    sizes = {"depths": [1, 1], "dims": [4, 8]}
    return entry("ConvNeXt", **sizes, layer_scale_init_value=0.5)


def mlla():
    sizes = {"img_size": 16, "patch_size": 4, "dim": 8, "depths": [1], "num_heads": [2]}
    return entry("Mlla", **sizes)


def vssd():
    """The mixer is that of Mamba 2."""
    sizes = {"img_size": 16, "patch_size": 4, "dim": 8, "depths": [1], "num_heads": [2]}
    return entry("Vssd", **sizes, d_state=4, attentions_layers="mamba2mixer")


def att_net():
    sizes = {"dims": [16, 32], "depths": [1, 1], "exp_rates": [2, 2], "kernel_sizes": [3, 3]}
    return entry("AttNet", 32, **sizes, glu_dwconv=[True, True], glu_norm=[True, True])


def reduce_former():
    sizes = {"widths": [8, 8, 8], "depths": [1, 1, 1], "head_dim": 4}
    return entry("ReduceFormer", 32, **sizes, block_types=["conv", "conv", "attention"])


def low_former():
    sizes = {"widths": [8, 8, 8], "depths": [1, 1, 1], "att_strides": [1, 1, 1]}
    kinds = {"block_types": ["conv", "conv", "attention"], "attention_type": "softmax"}
    return entry("LowFormer", 32, **sizes, **kinds)


MODELS = (vit, conv_next, mlla, vssd, att_net, reduce_former, low_former)
