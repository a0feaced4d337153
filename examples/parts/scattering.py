"""Scattering features of small pictures: two layers of fixed wavelets, of which nothing is learned.

A picture is filtered by Morlet wavelets of eight directions and two scales, the absolute values of
the finer ones are filtered again by the coarser ones, and everything is averaged over four pixels
(Mallat 2012; Tramèr and Boneh 2021 for private learning). A feature depends on its own picture and
on constants, so making the features costs no privacy.
"""

from __future__ import annotations

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from parts import keeping

SIDE = 32  # pixels, after the margin
MARGIN = 2
DIRECTIONS = 8
CHANNELS = 1 + 2 * DIRECTIONS + DIRECTIONS**2
PLACES = 7  # rows and columns of features: one for four pixels


@functools.cache
def filters() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """In frequencies: wavelets of 1 pixel, of 2 pixels, and the average."""
    angles = [np.pi * k / DIRECTIONS for k in range(DIRECTIONS)]
    fine, coarse = (
        np.stack([morlet(0.8 * 2**scale, angle, 0.75 * np.pi / 2**scale) for angle in angles])
        for scale in (0, 1)
    )
    smooth = gaussian(1.6, 0.0, 1.0)
    return fine, coarse, np.fft.fft2(smooth / smooth.sum()).real.astype(np.float32)


def gaussian(sigma: float, angle: float, slant: float, frequency: float = 0.0) -> np.ndarray:
    """A bump at the corner, around which a picture repeats; narrower by `slant` along the angle."""
    at = np.arange(-2 * SIDE, 3 * SIDE)
    y, x = np.meshgrid(at, at, indexing="ij")
    along, across = np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x
    bump = np.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2) + 1j * frequency * along)
    return bump.reshape(5, SIDE, 5, SIDE).sum(axis=(0, 2))


def morlet(sigma: float, angle: float, frequency: float) -> np.ndarray:
    """A wave under a bump, less a bump, so that a constant picture gives zero."""
    slant = 4 / DIRECTIONS
    wave, bump = gaussian(sigma, angle, slant, frequency), gaussian(sigma, angle, slant)
    wavelet = (wave - bump * wave.sum() / bump.sum()) * slant / (2 * np.pi * sigma**2)
    return np.fft.fft2(wavelet).real.astype(np.float32)


def thinned(x: jax.Array, step: int) -> jax.Array:
    """Frequencies of a picture of which every `step`-th pixel is kept, in rows and columns."""
    *before, side, _ = x.shape
    size = side // step
    return x.reshape(*before, step, size, step, size).mean(axis=(-4, -2))


def kept_at(x: jax.Array, size: int) -> jax.Array:
    """Absolute values of a picture that is given by its frequencies, with `size` pixels a side."""
    return jnp.abs(jnp.fft.ifft2(thinned(x, x.shape[-1] // size)))


def averaged(frequencies: jax.Array, smooth: jax.Array) -> jax.Array:
    """The average at every fourth pixel of the margin-free part."""
    step = SIDE // frequencies.shape[-1]
    low = thinned(smooth, step) * step**2 if step > 1 else smooth
    found = jnp.fft.ifft2(thinned(frequencies * low, 4 // step)).real
    return found[..., 1:, 1:]


def features(pictures: jax.Array) -> jax.Array:
    """From bytes `[n, 28, 28]` to `[n, 7, 7, 81]`."""
    fine, coarse, smooth = (jnp.asarray(x) for x in filters())
    pads = ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN))
    x = jnp.fft.fft2(jnp.pad(pictures.astype(jnp.float32) / 255, pads, mode="reflect"))
    first = jnp.fft.fft2(kept_at(x[:, None] * fine, SIDE))  # [n, 8, 32, 32]
    second = kept_at(first[:, :, None] * coarse, SIDE // 2)  # [n, 8, 8, 16, 16]
    other = kept_at(x[:, None] * coarse, SIDE // 2)
    parts = (
        averaged(x[:, None], smooth),
        averaged(first, smooth),
        averaged(jnp.fft.fft2(other), smooth),
        averaged(jnp.fft.fft2(second), smooth).reshape(len(x), -1, PLACES, PLACES),
    )
    return jnp.moveaxis(jnp.concatenate(parts, axis=1), 1, -1)


def mirrored_channels() -> np.ndarray:
    """Which channel of a picture is each channel of its mirror image: angle a becomes pi - a."""
    turned = -np.arange(DIRECTIONS) % DIRECTIONS
    pairs = turned[:, None] * DIRECTIONS + turned
    first = 1 + np.concatenate([turned, DIRECTIONS + turned])
    return np.concatenate([[0], first, 1 + 2 * DIRECTIONS + pairs.ravel()])


def kept(path: Path, pictures: np.ndarray, chunk: int = 250) -> np.ndarray:
    """Features of all pictures in half precision, from the file if it is there."""
    made = jax.jit(lambda x: features(x).astype(jnp.float16))
    return keeping.kept(path, pictures, made, chunk)
