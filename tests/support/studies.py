"""Studies of the examples at small size: run one, and compare its gradients with vmap's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import bk_jax
from support.tolerance import assert_within, gradient_rtol

NAMES = ["not private", "private", "private, by vmap(grad)"]
PNG = b"\x89PNG\r\n\x1a\n"


def run_small(main: Callable[[list[str]], Any], directory: Path, config: str) -> Any:
    """Runs an example's command line on a configuration."""
    directory.mkdir(exist_ok=True)
    path = directory / "small.toml"
    path.write_text(config)
    return main([f"--config={path}", f"--directory={directory / 'out'}"])


def assert_complete(outcomes: Any, directory: Path, *, epsilon: float) -> None:
    """Three trainings, of which the private ones stay in their budget, and a plot of them."""
    assert [outcome.name for outcome in outcomes] == NAMES
    plain, private, by_vmap = (outcome.points[-1] for outcome in outcomes)
    assert plain.epsilon == float("inf")
    assert 0 < private.epsilon <= epsilon
    assert 0 < by_vmap.epsilon <= private.epsilon
    assert outcomes[0].time == outcomes[0].memory == 1
    assert all(np.isfinite(list(point.metrics.values())).all() for point in (private, by_vmap))
    assert (directory / "out" / "study.png").read_bytes().startswith(PNG)


def assert_clipped_as_by_vmap(problem: Any, by_vmap: Callable[..., Any], batch: Any) -> None:
    """bk_jax's clipped sum is the usual one, at a clip norm that half of the examples exceed.

    An element of the sum adds one number of each example, of size C at most, and each of them has the
    relative error of a gradient.
    """
    size, padding = len(batch.is_padding_example), batch.is_padding_example
    frozen = jax.tree.map(np.asarray, problem.frozen)

    def clipped(clip_norm: Any) -> Any:
        grad_fn = bk_jax.dp_value_and_grad(
            problem.loss_fn, l2_clip_norm=clip_norm, noise_multiplier=0.0, return_stats=True
        )
        return grad_fn(problem.params, batch.examples, is_padding_example=padding, frozen=frozen)

    norms = np.asarray(jax.jit(functools.partial(clipped, 1.0))()[2].norms)[~padding]
    clip_norm = float(np.median(norms))
    assert norms.min() < clip_norm < norms.max()
    ours = jax.jit(functools.partial(clipped, clip_norm))()[1]
    theirs = jax.jit(functools.partial(by_vmap, problem, clip_norm))(problem.params, batch, frozen)
    found = dict(jax.tree_util.tree_leaves_with_path(ours))
    bound = gradient_rtol(np.float32, size, 1000) * clip_norm * size
    for path, expected in jax.tree_util.tree_leaves_with_path(theirs):
        assert_within(found[path], expected, bound, jax.tree_util.keystr(path))
