"""What published models are made of, layer by layer; tools/layer_tables.py writes it down.

Layouts are those of timm and torchvision for images, of Hugging Face Transformers for text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Layer = dict[str, Any]
Layers = Iterator[Layer]


def dense(name: str, d: int, p: int, **more: Any) -> Layer:
    """A matrix d x p; without `T` it meets every token."""
    return {"name": name, "kind": "dense", "d": d, "p": p, "bias": True, **more}


def conv(name: str, side: int, channels: int, p: int, kernel: int, **more: Any) -> Layer:
    """A square kernel whose result has `side` x `side` pixels."""
    d = channels // more.get("groups", 1) * kernel**2
    layer = {"name": name, "kind": "conv", "T": side**2, "d": d, "p": p // more.get("groups", 1)}
    return {**layer, **({"kernel": kernel} if kernel > 1 else {}), **more}


def embedding(name: str, rows: int, width: int, **more: Any) -> Layer:
    """A table of which rows are looked up."""
    return {"name": name, "kind": "embedding", "d": rows, "p": width, **more}


def norm(name: str, width: int, count: int = 1, bias: bool = True) -> Layer:
    """A scale, and mostly a shift, for each feature."""
    return {"name": name, "kind": "norm", "p": width, "bias": bias, "count": count}


def parameter(name: str, size: int, count: int = 1) -> Layer:
    """An array that belongs to no layer: a class token, positions that are added."""
    return {"name": name, "kind": "parameter", "p": size, "count": count}


# --- images ---

BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}


def resnet(depth: int, wide: int = 1) -> Layers:
    """Convolutions without bias, a norm after each; the stride of a bottleneck is on its 3 x 3."""
    yield conv("conv1", 112, 3, 64, 7, stride=2)
    yield norm("norm1", 64)
    channels, side = 64, 56
    for stage, blocks in enumerate(BLOCKS[depth], 2):
        width = 64 << (stage - 2)
        for block in range(blocks):
            stride = 2 if stage > 2 and block == 0 else 1
            make = _bottleneck if depth >= 50 else _basic
            yield from make(f"conv{stage}", side, channels, width, wide, stride)
            channels, side = width * (4 if depth >= 50 else 1), side // stride
    yield dense("fc", channels, 1000, T=1)


def _basic(name: str, side: int, channels: int, width: int, wide: int, stride: int) -> Layers:
    del wide
    out = side // stride
    yield conv(f"{name}.3x3", out, channels, width, 3, stride=stride)
    yield conv(f"{name}.3x3", out, width, width, 3, stride=1)
    yield norm(f"{name}.norm", width, 2)
    if channels != width:
        yield conv(f"{name}.shortcut", out, channels, width, 1, stride=stride)
        yield norm(f"{name}.norm", width)


def _bottleneck(name: str, side: int, channels: int, width: int, wide: int, stride: int) -> Layers:
    out, inner = side // stride, width * wide
    yield conv(f"{name}.reduce", side, channels, inner, 1, stride=1)
    yield conv(f"{name}.3x3", out, inner, inner, 3, stride=stride)
    yield conv(f"{name}.expand", out, inner, 4 * width, 1, stride=1)
    yield norm(f"{name}.norm", inner, 2)
    yield norm(f"{name}.norm", 4 * width)
    if channels != 4 * width:
        yield conv(f"{name}.shortcut", out, channels, 4 * width, 1, stride=stride)
        yield norm(f"{name}.norm", 4 * width)


def densenet(blocks: tuple[int, ...], growth: int, channels: int) -> Layers:
    """Every layer sees the results of all layers of its block."""
    yield conv("conv1", 112, 3, channels, 7, stride=2)
    yield norm("norm1", channels)
    side = 56
    for number, layers in enumerate(blocks, 1):
        for _ in range(layers):
            yield norm(f"block{number}.norm", channels)
            yield conv(f"block{number}.reduce", side, channels, 4 * growth, 1, stride=1)
            yield norm(f"block{number}.norm", 4 * growth)
            yield conv(f"block{number}.3x3", side, 4 * growth, growth, 3, stride=1)
            channels += growth
        yield norm(f"block{number}.last_norm", channels)
        if number < len(blocks):
            yield conv(f"transition{number}", side, channels, channels // 2, 1, stride=1)
            channels, side = channels // 2, side // 2
    yield dense("fc", channels, 1000, T=1)


def vgg(convolutions: tuple[int, ...]) -> Layers:
    """Stages of 3 x 3 convolutions with bias, pooling after each, then three dense layers."""
    channels, side = 3, 224
    for stage, (count, width) in enumerate(
        zip(convolutions, (64, 128, 256, 512, 512), strict=True), 1
    ):
        for _ in range(count):
            yield conv(f"conv{stage}", side, channels, width, 3, stride=1, bias=True)
            channels = width
        side //= 2
    yield dense("fc1", 512 * 7 * 7, 4096, T=1)
    yield dense("fc2", 4096, 4096, T=1)
    yield dense("fc3", 4096, 1000, T=1)


def _patches(name: str, side: int, size: int, width: int) -> Layer:
    return conv(name, side, 3, width, size, stride=size, bias=True)


def vision_block(prefix: str, tokens: int, d: int, count: int, **qkv: Any) -> Layers:
    """Attention and a perceptron of four times the width, a norm before each."""
    at = {"T": tokens, "count": count}
    yield norm(f"{prefix}norm", d, 2 * count)
    yield dense(f"{prefix}qkv", d, 3 * d, **at, **qkv)
    yield dense(f"{prefix}out", d, d, **at)
    yield dense(f"{prefix}up", d, 4 * d, **at)
    yield dense(f"{prefix}down", 4 * d, d, **at)


def vit(depth: int, d: int) -> Layers:
    """Patches of 16 pixels and a class token; DeiT has the same layers."""
    yield _patches("patch", 14, 16, d)
    yield parameter("class_token", d)
    yield parameter("position", 197 * d)
    yield from vision_block("", 197, d, depth)
    yield norm("norm", d)
    yield dense("head", d, 1000, T=1)


def beit(depth: int, d: int) -> Layers:
    """Biases of query and value, and scales, are arrays of their own; the head sees a mean of tokens."""
    yield _patches("patch", 14, 16, d)
    yield parameter("class_token", d)
    yield from vision_block("", 197, d, depth, bias=False)
    yield parameter("query_value_bias", 2 * d, depth)
    yield parameter("scale", 2 * d, depth)
    yield parameter("relative_position", 732 * d // 64, depth)
    yield norm("norm", d)
    yield dense("head", d, 1000, T=1)


def crossvit(small: int, large: int) -> Layers:
    """Two branches of tokens that exchange their class tokens three times."""
    yield _patches("small.patch", 20, 12, small)
    yield _patches("large.patch", 14, 16, large)
    for name, d, tokens, depth in (("small.", small, 401, 1), ("large.", large, 197, 4)):
        yield parameter(f"{name}class_token", d)
        yield parameter(f"{name}position", tokens * d)
        yield from vision_block(name, tokens, d, 3 * depth)
        yield dense(f"{name}cross.query", d, d, T=1, count=3)
        yield dense(f"{name}cross.key_value", d, d, T=tokens, count=6)
        yield dense(f"{name}cross.out", d, d, T=1, count=3)
        yield norm(f"{name}norm", d, 3 + 6 + 1)
        yield dense(f"{name}head", d, 1000, T=1)
    yield dense("small_to_large", small, large, T=1, count=6)
    yield dense("large_to_small", large, small, T=1, count=6)


def convnext(width: int) -> Layers:
    """Depthwise 7 x 7 convolutions, each followed by a perceptron for every pixel."""
    yield conv("stem", 56, 3, width, 4, stride=4, bias=True)
    yield norm("stem.norm", width)
    side = 56
    for stage, depth in enumerate((3, 3, 27, 3), 1):
        if stage > 1:
            yield norm(f"downsample{stage}.norm", width)
            side, width = side // 2, 2 * width
            yield conv(f"downsample{stage}", side, width // 2, width, 2, stride=2, bias=True)
        more = {"groups": width, "stride": 1, "bias": True, "count": depth}
        yield conv(f"stage{stage}.depthwise", side, width, width, 7, **more)
        yield norm(f"stage{stage}.norm", width, depth)
        yield dense(f"stage{stage}.up", width, 4 * width, T=side**2, count=depth)
        yield dense(f"stage{stage}.down", 4 * width, width, T=side**2, count=depth)
        yield parameter(f"stage{stage}.scale", width, depth)
    yield norm("norm", width)
    yield dense("head", width, 1000, T=1)


# --- text ---


def bert(
    vocabulary: int, positions: int, types: int, depth: int, d: int, glob: bool = False
) -> Layers:
    """BERT, RoBERTa, and Longformer with its second set of projections (`glob`)."""
    yield embedding("token", vocabulary, d)
    yield embedding("position", positions, d)
    yield embedding("token_type", types, d)
    yield norm("embedding_norm", d)
    yield dense("query_key_value", d, d, count=3 * depth)
    if glob:
        yield dense("global.query", d, d, T=1, count=depth)
        yield dense("global.key_value", d, d, count=2 * depth)
    yield dense("out", d, d, count=depth)
    yield dense("up", d, 4 * d, count=depth)
    yield dense("down", 4 * d, d, count=depth)
    yield norm("norm", d, 2 * depth)
    yield dense("pooler", d, d, T=1)


def gpt2(depth: int, d: int) -> Layers:
    """The output head is the token table again."""
    yield embedding("token", 50257, d)
    yield embedding("position", 1024, d)
    yield dense("qkv", d, 3 * d, count=depth)
    yield dense("out", d, d, count=depth)
    yield dense("up", d, 4 * d, count=depth)
    yield dense("down", 4 * d, d, count=depth)
    yield norm("norm", d, 2 * depth + 1)
    yield dense("lm_head", d, 50257, bias=False, tied=True)


def t5(
    depth: int, d: int, inner: int, heads: int, gated: bool = False, glob: bool = False
) -> Layers:
    """No biases; encoder and decoder see as many tokens. `glob`: global tokens of LongT5."""
    yield embedding("token", 32128, d)
    yield embedding("relative_position", 32, heads, count=2 + glob)
    for name, attentions in (("encoder", 1), ("decoder", 2)):
        yield dense(f"{name}.attention", d, d, bias=False, count=4 * attentions * depth)
        yield dense(f"{name}.up", d, inner, bias=False, count=depth * (1 + gated))
        yield dense(f"{name}.down", inner, d, bias=False, count=depth)
        more = depth if glob and name == "encoder" else 0
        yield norm(f"{name}.norm", d, (attentions + 1) * depth + 1 + more, bias=False)
    yield dense("lm_head", d, 32128, bias=False, tied=True)


def mlp(width: int, depth: int) -> Layers:
    """The networks of figure 2: flattened images of CIFAR100."""
    yield dense("first", 3072, width, T=1)
    yield dense("hidden", width, width, T=1, count=depth - 2)
    yield dense("last", width, 100, T=1)


def images() -> dict[str, tuple[str, Layers]]:
    """Title and layers of the models that see images of 224 x 224 pixels."""
    return {
        **{f"resnet{depth}": (f"ResNet{depth}", resnet(depth)) for depth in BLOCKS},
        "wide_resnet50": ("Wide ResNet50", resnet(50, wide=2)),
        "wide_resnet101": ("Wide ResNet101", resnet(101, wide=2)),
        "densenet121": ("DenseNet121", densenet((6, 12, 24, 16), 32, 64)),
        "densenet161": ("DenseNet161", densenet((6, 12, 36, 24), 48, 96)),
        "densenet201": ("DenseNet201", densenet((6, 12, 48, 32), 32, 64)),
        "vgg11": ("VGG11", vgg((1, 1, 2, 2, 2))),
        "vgg13": ("VGG13", vgg((2, 2, 2, 2, 2))),
        "vgg16": ("VGG16", vgg((2, 2, 3, 3, 3))),
        "vgg19": ("VGG19", vgg((2, 2, 4, 4, 4))),
        **{
            f"{family}_{size}_patch16_224": (f"{title}-{size}", vit(depth, d))
            for family, title in (("vit", "ViT"), ("deit", "DeiT"))
            for size, depth, d in (("tiny", 12, 192), ("small", 12, 384), ("base", 12, 768))
        },
        "vit_large_patch16_224": ("ViT-large", vit(24, 1024)),
        "beit_base_patch16_224": ("BEiT-base", beit(12, 768)),
        "beit_large_patch16_224": ("BEiT-large", beit(24, 1024)),
        "convnext_small": ("ConvNeXt-small", convnext(96)),
        "convnext_base": ("ConvNeXt-base", convnext(128)),
        "convnext_large": ("ConvNeXt-large", convnext(192)),
    }


def crossvits() -> dict[str, tuple[str, Layers]]:
    """Those that see 240 x 240 pixels."""
    return {
        f"crossvit_{size}_240": (f"CrossViT-{size}", crossvit(d, 2 * d))
        for size, d in (("tiny", 96), ("small", 192), ("base", 384))
    }


def texts() -> dict[str, tuple[str, int, Layers]]:
    """Title, number of tokens and layers."""
    return {
        "roberta-base": ("RoBERTa-base", 256, bert(50265, 514, 1, 12, 768)),
        "roberta-large": ("RoBERTa-large", 256, bert(50265, 514, 1, 24, 1024)),
        "distilroberta-base": ("DistilRoBERTa-base", 256, bert(50265, 514, 1, 6, 768)),
        "bert-base-uncased": ("BERT-base, uncased", 256, bert(30522, 512, 2, 12, 768)),
        "bert-large-uncased": ("BERT-large, uncased", 256, bert(30522, 512, 2, 24, 1024)),
        "bert-base-cased": ("BERT-base, cased", 256, bert(28996, 512, 2, 12, 768)),
        "bert-large-cased": ("BERT-large, cased", 256, bert(28996, 512, 2, 24, 1024)),
        "longformer-base-4096": ("Longformer-base", 4096, bert(50265, 4098, 1, 12, 768, True)),
        "longformer-large-4096": ("Longformer-large", 4096, bert(50265, 4098, 1, 24, 1024, True)),
        "t5-small": ("T5-small", 512, t5(6, 512, 2048, 8)),
        "t5-base": ("T5-base", 512, t5(12, 768, 3072, 12)),
        "t5-large": ("T5-large", 512, t5(24, 1024, 4096, 16)),
        "long-t5-local-base": ("LongT5-local-base", 4096, t5(12, 768, 2048, 12, True)),
        "long-t5-local-large": ("LongT5-local-large", 4096, t5(24, 1024, 2816, 16, True)),
        "long-t5-tglobal-base": ("LongT5-tglobal-base", 4096, t5(12, 768, 2048, 12, True, True)),
        "long-t5-tglobal-large": ("LongT5-tglobal-large", 4096, t5(24, 1024, 2816, 16, True, True)),
        "gpt2": ("GPT2-small", 100, gpt2(12, 768)),
        "gpt2-medium": ("GPT2-medium", 100, gpt2(24, 1024)),
        "gpt2-large": ("GPT2-large", 100, gpt2(36, 1280)),
    }


def perceptrons() -> dict[str, tuple[str, Layers]]:
    """Those that see a vector."""
    return {
        "mlp_deep": ("MLP, 50 layers of 1000", mlp(1000, 50)),
        "mlp_shallow": ("MLP, 10 layers of 1000", mlp(1000, 10)),
        "mlp_wide": ("MLP, 10 layers of 5000", mlp(5000, 10)),
    }
