"""Pictures of clothes, learned privately by a convolutional network or a vision transformer.

python examples/images.py --config configs/images_cnn.toml
python examples/images.py --config configs/images_vit.toml
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import study
from parts import cnn, scattering, vit

Tree = Any
PACKAGE = "dataset-fashion-mnist"
FOLDER = Path("/usr/share/datasets/fashion-mnist")
MODELS = {"cnn": cnn, "vit": vit}
BYTES = b"\0\0\x08"  # how an idx file of unsigned bytes begins
CHUNK = 500  # images that are evaluated at once


@dataclasses.dataclass(frozen=True)
class Options:
    """What `[model]` says beside the sizes of the network."""

    kind: str
    learning_rate: float
    num_examples: int | None = None  # to learn from, and held out; default: all
    scattering: str | None = None  # folder to keep features in; default: the network sees pixels
    mirrored: bool = False  # a picture's loss is the mean over it and its mirror image
    seed: int = 0  # of the initial parameters


# --- data -----------------------------------------------------------------------------------------


def read_idx(path: Path) -> np.ndarray:
    """The array in a gzipped idx file: its type, the number of axes, their sizes, then the values."""
    if not path.exists():
        raise FileNotFoundError(
            f"there is no {path}. The Debian package {PACKAGE} has it: apt-get install {PACKAGE}."
        )
    try:
        content = gzip.decompress(path.read_bytes())
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise damaged(path, str(error)) from error
    start = 4 + 4 * int.from_bytes(content[3:4])
    if content[:3] != BYTES or len(content) < start:
        raise damaged(path, f"it begins with {content[:4]!r} and not as an idx file of bytes does")
    shape = struct.unpack(f">{start // 4 - 1}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise damaged(path, f"{len(content) - start} values where its header says {shape}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def damaged(path: Path, what: str) -> ValueError:
    return ValueError(f"{path} is damaged ({what}): apt-get install --reinstall {PACKAGE}.")


def load_data(num_examples: int | None, folder: Path = FOLDER) -> tuple[Tree, Tree]:
    """Images to learn from and held-out ones, as bytes, with their labels."""

    def part(name: str) -> Tree:
        images = read_idx(folder / f"{name}-images-idx3-ubyte.gz")[:num_examples, ..., None]
        labels = read_idx(folder / f"{name}-labels-idx1-ubyte.gz")[:num_examples]
        return {"image": images, "label": labels.astype(np.int32)}

    return part("train"), part("t10k")


def scaled(images: jax.Array) -> jax.Array:
    """From bytes to [-1, 1], a scale that does not look at the data; features stay as they are."""
    values = images.astype(jnp.float32)
    return values / 127.5 - 1 if images.dtype == jnp.uint8 else values


@functools.cache
def load_features(num_examples: int | None, folder: Path) -> tuple[Tree, Tree]:
    """The same with scattering features instead of bytes; made once and kept in the folder."""

    def part(name: str, data: Tree) -> Tree:
        path = folder / f"scattering_{name}_{len(data['label'])}.npy"
        return data | {"image": scattering.kept(path, data["image"][..., 0])}

    data, held_out = load_data(num_examples)
    return part("train", data), part("t10k", held_out)


def mirrored(images: jax.Array) -> jax.Array:
    """Left and right exchanged; of features, the directions too."""
    turned = images[:, :, ::-1]
    return turned if images.dtype == jnp.uint8 else turned[..., scattering.mirrored_channels()]


# --- problem --------------------------------------------------------------------------------------


def make_problem(table: dict[str, Any]) -> study.Problem:
    """The network of a configuration, and Fashion-MNIST."""
    options, sizes, make = read_model(table)
    if options.scattering is None:
        data, held_out = load_data(options.num_examples)
    else:
        data, held_out = load_features(options.num_examples, Path(options.scattering))
    params, apply = make(sizes, scaled(jnp.asarray(data["image"][:1])), options.seed)

    def losses_of(params: Tree, images: jax.Array, labels: jax.Array) -> jax.Array:
        logits = apply(params, scaled(images))
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels)

    def losses_fn(params: Tree, examples: Tree, frozen: None) -> jax.Array:
        images, labels = examples["image"], examples["label"]
        if not options.mirrored:
            return losses_of(params, images, labels)
        both = jnp.stack([images, mirrored(images)], axis=1)
        each = losses_of(params, both.reshape(-1, *images.shape[1:]), jnp.repeat(labels, 2))
        return each.reshape(-1, 2).mean(axis=1)

    @jax.jit
    def measure(params: Tree, held_out: Tree) -> dict[str, jax.Array]:
        def logits_of_one(image: jax.Array) -> jax.Array:
            return apply(params, scaled(image[None]))[0]

        logits = jax.lax.map(logits_of_one, held_out["image"], batch_size=CHUNK)
        return {"accuracy": jnp.mean(jnp.argmax(logits, axis=1) == held_out["label"])}

    held_out = jax.device_put(held_out)
    optimizer = optax.adam(options.learning_rate)
    return study.Problem(params, losses_fn, data, lambda p: measure(p, held_out), optimizer)


def read_model(table: dict[str, Any]) -> tuple[Options, Any, Any]:
    """The table `[model]` in two, and the function that makes the network."""
    kind = table.get("kind")
    if kind not in MODELS:
        raise ValueError(f"[model] has kind = {kind!r}; there are {sorted(MODELS)}.")
    ours = {field.name for field in dataclasses.fields(Options)}
    options = {name: value for name, value in table.items() if name in ours}
    sizes = {name: value for name, value in table.items() if name not in ours}
    model = MODELS[kind]
    return (
        study.from_table(Options, options, "[model]"),
        study.from_table(model.Sizes, sizes, f"[model] of kind {kind!r}"),
        model.make,
    )


def main(argv: Sequence[str] | None = None) -> list[study.Outcome]:
    return study.main("images_cnn", "Fashion-MNIST", make_problem, argv)


if __name__ == "__main__":
    main()
