"""Whole models of the table: as many parameters as the published ones, and losses that can be traced."""

import math

import jax
import numpy as np
import pytest

from benchmarks.steps import step_models

# As torchvision, timm and Transformers count them.
PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2_medium": 354_823_168,
    "gpt2_large": 774_030_080,
    "vit": 86_567_656,
    "vit_large": 304_326_632,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "resnet152": 60_192_808,
    "wide_resnet50": 68_883_240,
    "vgg11": 132_863_336,
    "vgg16": 138_357_544,
    "densenet121": 7_978_856,
    "convnext_base": 88_591_464,
}
# A scale and a shift of GroupNorm where the published model has one bias.
NORMS = {"vgg11": 64 + 128 + 2 * 256 + 4 * 512, "vgg16": 2 * 64 + 2 * 128 + 3 * 256 + 6 * 512}
CONVOLUTIONAL = [name for name in PUBLISHED if not name.startswith(("gpt2", "vit"))]


def parameters(tree):
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_of_the_published_model(name):
    task = step_models.make(name, abstract=True, batch=1)
    assert parameters(task.params) == PUBLISHED[name] + NORMS.get(name, 0)


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_every_parameter_meets_the_loss(name):
    """Nothing is computed: a parameter is used if the jaxpr of the loss reads it."""
    task = step_models.make(name, abstract=True, batch=2, size=64)
    jaxpr = jax.make_jaxpr(task.loss)(task.params, task.batch).jaxpr
    assert [out.aval.shape for out in jaxpr.outvars] == [()]
    assert all(out.aval.dtype == np.float32 for out in jaxpr.outvars)
    read = {var for eqn in jaxpr.eqns for var in eqn.invars if not hasattr(var, "val")}
    leaves = jax.tree_util.tree_leaves_with_path(task.params)
    unused = [
        jax.tree_util.keystr(path)
        for (path, _), var in zip(leaves, jaxpr.invars[: len(leaves)], strict=True)
        if var not in read
    ]
    assert unused == []


@pytest.mark.parametrize(
    ("name", "channels"), [("densenet121", [256, 512, 1024, 1024]), ("resnet152", [2048])]
)
def test_channels_are_those_of_the_paper(name, channels):
    """Where blocks end: DenseNet's halved and grown again, ResNet's widest."""
    params = step_models.make(name, abstract=True, batch=1, size=32).params
    if name == "densenet121":
        ends = [block[-1][0]["scale"].shape[0] + 32 for block in params["blocks"]]
    else:
        ends = [params["head"]["w"].shape[0]]
    assert ends == channels
