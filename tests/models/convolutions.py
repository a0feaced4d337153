"""Convolutions: in one, two and three dimensions, grouped, strided, dilated and transposed."""

from __future__ import annotations

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
from flax import linen, nnx

from models.model import B, D, Model, classification_loss, fill, images, labels

KEY = jax.eval_shape(jax.random.key, 0)
PICTURES = (images(1, B, 6, 6, 3), labels(2, 4))


def linen_model(module: linen.Module, batch, kinds: dict[str, str]) -> Model:
    params = fill(jax.eval_shape(module.init, KEY, batch[0]))
    return Model(classification_loss(module.apply), (params, batch), kinds)


LINEN_KINDS = {"*Dense*/kernel": "dense", "*Conv*/kernel": "conv", "*/bias": "leaf"}


class LinenResNet(linen.Module):
    """Two residual blocks; the second halves the picture and projects its shortcut."""

    @linen.compact
    def __call__(self, x):
        x = linen.Conv(D, (3, 3))(x)
        for strides in (1, 2):
            y = linen.relu(linen.GroupNorm(2, epsilon=0.1)(x))
            shortcut = linen.Conv(D, (1, 1), strides=strides, use_bias=False)(y)
            y = linen.Conv(D, (3, 3), strides=strides, use_bias=False)(y)
            y = linen.relu(linen.GroupNorm(2, epsilon=0.1)(y))
            x = (x if strides == 1 else shortcut) + linen.Conv(D, (3, 3), use_bias=False)(y)
        return linen.Dense(4)(x.mean((1, 2)))


def resnet_linen() -> Model:
    """The first block's shortcut is computed but not used: its parameter has no gradient."""
    unused = {"*/Conv_1/kernel": "unused"}
    return linen_model(LinenResNet(), PICTURES, unused | LINEN_KINDS | {"*/scale": "leaf"})


class NnxResNet(nnx.Module):
    """One residual block."""

    def __init__(self, rngs: nnx.Rngs):
        self.stem = nnx.Conv(3, D, (3, 3), strides=2, rngs=rngs)
        self.norm = nnx.GroupNorm(D, 2, epsilon=0.1, rngs=rngs)
        self.conv = nnx.Conv(D, D, (3, 3), rngs=rngs)
        self.head = nnx.Linear(D, 4, rngs=rngs)

    def __call__(self, x):
        x = self.stem(x)
        x = x + self.conv(nnx.relu(self.norm(x)))
        return self.head(x.mean((1, 2)))


def resnet_nnx() -> Model:
    graph, params = nnx.split(nnx.eval_shape(lambda: NnxResNet(nnx.Rngs(0))))

    def logits(params, x):
        return nnx.merge(graph, params)(x)

    kinds = {"head/kernel*": "dense", "*kernel*": "conv", "*bias*": "leaf", "*scale*": "leaf"}
    return Model(classification_loss(logits), (fill(params), PICTURES), kinds)


def resnet_haiku() -> Model:
    def forward(x):
        x = hk.Conv2D(D, 3, stride=2)(x)
        x += hk.Conv2D(D, 3, feature_group_count=2)(jax.nn.relu(hk.GroupNorm(2, eps=0.1)(x)))
        return hk.Linear(4)(x.mean((1, 2)))

    module = hk.without_apply_rng(hk.transform(forward))
    params = fill(jax.eval_shape(module.init, KEY, PICTURES[0]))
    kinds = {"linear/w": "dense", "*/w": "conv", "*/b": "leaf", "group_norm/*": "leaf"}
    return Model(classification_loss(module.apply), (params, PICTURES), kinds)


class LinenConvNeXt(linen.Module):
    """A depthwise convolution, an inverted bottleneck and a layer scale."""

    @linen.compact
    def __call__(self, x):
        x = linen.Conv(D, (2, 2), strides=2, padding="VALID", name="StemConv")(x)
        y = linen.Conv(D, (3, 3), feature_group_count=D, name="DepthwiseConv")(x)
        y = linen.LayerNorm(epsilon=0.1)(y)
        y = linen.Dense(D)(linen.gelu(linen.Dense(2 * D)(y)))
        x = x + y * self.param("layer_scale", linen.initializers.ones, (D,))
        return linen.Dense(4)(x.mean((1, 2)))


def convnext_linen() -> Model:
    return linen_model(LinenConvNeXt(), PICTURES, {"*scale": "leaf", **LINEN_KINDS})


class LinenConv1D(linen.Module):
    """Causal, dilated convolutions as in WaveNet, with gates."""

    @linen.compact
    def __call__(self, x):
        for dilation in (1, 2):
            padding = ((2 * dilation, 0),)
            y = linen.Conv(2 * D, (3,), kernel_dilation=dilation, padding=padding)(x)
            value, gate = jnp.split(y, 2, axis=-1)
            x = x + linen.Conv(x.shape[-1], (1,))(jnp.tanh(value) * linen.sigmoid(gate))
        return linen.Dense(4)(x[:, -1])


def conv1d_linen() -> Model:
    return linen_model(LinenConv1D(), (images(1, B, 7, 3), labels(2, 4)), LINEN_KINDS)


def conv3d_linen() -> Model:
    module = linen.Sequential(
        [
            linen.Conv(4, (2, 3, 2), strides=(1, 2, 1), feature_group_count=2),
            linen.relu,
            linen.Conv(4, (2, 2, 2), padding="VALID"),
            lambda x: x.reshape(x.shape[0], -1),
            linen.Dense(4, name="Dense"),
        ]
    )
    batch = (images(1, B, 3, 4, 3, 2), labels(2, 4))
    kinds = {"*/layers_[02]/kernel": "conv", "*/kernel": "dense", "*/bias": "leaf"}
    return linen_model(module, batch, kinds)


class EquinoxConvs(eqx.Module):
    """Channels first, one example at a time: 3-D, 1-D, grouped and transposed convolutions."""

    conv3d: eqx.nn.Conv3d
    conv1d: eqx.nn.Conv1d
    transposed: eqx.nn.ConvTranspose1d
    norm: eqx.nn.GroupNorm
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 4)
        self.conv3d = eqx.nn.Conv3d(2, 4, (2, 3, 2), stride=(1, 2, 1), padding=1, key=keys[0])
        self.conv1d = eqx.nn.Conv1d(4, 6, 3, groups=2, dilation=2, padding="SAME", key=keys[1])
        self.transposed = eqx.nn.ConvTranspose1d(6, 4, 3, stride=2, key=keys[2])
        self.norm = eqx.nn.GroupNorm(2, 4, eps=0.1)
        self.head = eqx.nn.Linear(4, 4, key=keys[3])

    def __call__(self, x):
        x = self.norm(self.conv3d(x))
        x = jax.nn.relu(self.conv1d(x.reshape(4, -1)[:, :7]))
        return self.head(self.transposed(x).mean(-1))


def convs_equinox() -> Model:
    shapes = eqx.filter_eval_shape(EquinoxConvs, KEY)
    params, static = eqx.partition(shapes, lambda x: isinstance(x, jax.ShapeDtypeStruct))

    def logits(params, x):
        return eqx.combine(params, static)(x)

    kinds = {"head/weight": "dense", "norm/*": "leaf", "*/weight": "conv", "*/bias": "leaf"}
    args = (fill(params), (images(1, B, 2, 3, 4, 3), labels(2, 4)))
    return Model(classification_loss(logits), args, kinds, {"keep_batch_dim": False})


class LinenTransposed(linen.Module):
    """A small U-Net: down, up by a transposed convolution, joined with what was there before."""

    @linen.compact
    def __call__(self, x):
        down = linen.relu(linen.Conv(D, (3, 3), strides=2)(x))
        up = linen.ConvTranspose(4, (3, 3), strides=(2, 2))(down)
        x = jnp.concatenate([x, linen.relu(up)], axis=-1)
        x = linen.ConvTranspose(3, (2, 2), padding="VALID", transpose_kernel=True)(x)
        return linen.Dense(4)(x.mean((1, 2)))


def transposed_linen() -> Model:
    return linen_model(LinenTransposed(), PICTURES, LINEN_KINDS)


def transposed_haiku() -> Model:
    def forward(x):
        x = jax.nn.relu(hk.Conv2DTranspose(4, 3, stride=2)(x))
        return hk.Linear(4)(hk.DepthwiseConv2D(2, 3)(x).mean((1, 2)))

    module = hk.without_apply_rng(hk.transform(forward))
    batch = (images(1, B, 4, 4, 3), labels(2, 4))
    params = fill(jax.eval_shape(module.init, KEY, batch[0]))
    kinds = {"linear/w": "dense", "*/w": "conv", "*/b": "leaf"}
    return Model(classification_loss(module.apply), (params, batch), kinds)


def shared_convolution() -> Model:
    """One kernel at two resolutions, and a stack of kernels that is scanned over."""

    def conv(kernel, x, stride=1):
        numbers = ("NHWC", "HWIO", "NHWC")
        strides = (stride, stride)
        return jax.lax.conv_general_dilated(x, kernel, strides, "SAME", dimension_numbers=numbers)

    def logits(params, x):
        x = jnp.sin(conv(params["shared"], x))
        x = jnp.sin(conv(params["shared"], x, stride=2))
        x, _ = jax.lax.scan(lambda x, k: (x + jnp.sin(conv(k, x)), None), x, params["stack"])
        return x.mean((1, 2)) @ params["head"]

    shapes = {"shared": (3, 3, 3, 3), "stack": (2, 2, 2, 3, 3), "head": (3, 4)}
    kinds = {"shared": "conv", "stack": "conv", "head": "dense"}
    return Model(classification_loss(logits), (fill(shapes), PICTURES), kinds)


MODELS = [
    resnet_linen,
    resnet_nnx,
    resnet_haiku,
    convnext_linen,
    conv1d_linen,
    conv3d_linen,
    convs_equinox,
    transposed_linen,
    transposed_haiku,
    shared_convolution,
]
