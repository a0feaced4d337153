"""The image example: its files, its networks, its gradients, and the whole of it at small size."""

from __future__ import annotations

import gzip
from pathlib import Path

import images
import jax
import numpy as np
import pytest
import study
from flax import linen
from parts import vit
from support import studies

from bk_jax import sampling

CONFIGS = Path(__file__).parents[2] / "configs"
RUN = """
[run]
epsilon = 5.0
delta = 1e-4
epochs = 0.4
batch_size = 60
physical_batch_size = 40
clip_norm = 1.0
seed = 0
rounds = 1
"""
NETWORKS = {
    "cnn": 'kind = "cnn"\nchannels = [4]\nkernels = [8]\nhidden = 6\n',
    "vit": 'kind = "vit"\npatch = 14\nwidth = 8\nblocks = 1\nheads = 2\nhidden = 12\n',
}
REST = "learning_rate = 1e-2\nnum_examples = 300\n"


def table_of(kind):
    return study.tomllib.loads(NETWORKS[kind] + REST)


@pytest.fixture(scope="module", params=list(NETWORKS))
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def problem(kind):
    return images.make_problem(table_of(kind))


# --- files ----------------------------------------------------------------------------------------


def idx(values):
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    return images.BYTES + bytes([values.ndim]) + sizes + values.tobytes()


@pytest.mark.parametrize("shape", [(0,), (1,), (5,), (3, 2), (4, 3, 2)])
def test_idx_files_are_read(tmp_path, shape):
    values = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    (tmp_path / "a.gz").write_bytes(gzip.compress(idx(values)))
    found = images.read_idx(tmp_path / "a.gz")
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, values, strict=True)


WHOLE = idx(np.arange(6, dtype=np.uint8).reshape(2, 3))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (gzip.compress(WHOLE)[:-4], "ended before the end"),
        (gzip.compress(WHOLE[:-1]), r"5 values where its header says \(2, 3\)"),
        (gzip.compress(WHOLE + b"\0"), r"7 values where its header says \(2, 3\)"),
        (gzip.compress(WHOLE[:9]), "not as an idx file of bytes does"),
        (gzip.compress(b"\0\0\x0d" + WHOLE[3:]), "not as an idx file of bytes does"),
        (gzip.compress(b"\0\0\x08"), "not as an idx file of bytes does"),
        (gzip.compress(b""), "not as an idx file of bytes does"),
        (WHOLE, "[Nn]ot a gzipped file"),
    ],
    ids=["cut", "short", "long", "no sizes", "floats", "no axes", "empty", "not compressed"],
)
def test_damaged_files_are_refused(tmp_path, content, what):
    (tmp_path / "a.gz").write_bytes(content)
    with pytest.raises(
        ValueError, match=rf"a\.gz is damaged \(.*{what}.*--reinstall dataset-fashion"
    ):
        images.read_idx(tmp_path / "a.gz")


def test_a_missing_file_names_its_package(tmp_path):
    with pytest.raises(FileNotFoundError, match="apt-get install dataset-fashion-mnist"):
        images.load_data(None, tmp_path)


def test_fashion_mnist_is_whole():
    data, held_out = images.load_data(None)
    assert data["image"].shape == (60000, 28, 28, 1)
    assert held_out["image"].shape == (10000, 28, 28, 1)
    assert np.bincount(data["label"]).tolist() == [6000] * 10
    assert np.bincount(held_out["label"]).tolist() == [1000] * 10


def test_bytes_are_scaled_to_one():
    ends = jax.jit(images.scaled)(np.array([0, 255], np.uint8))
    assert ends.tolist() == pytest.approx([-1, 1], abs=2**-23)  # a division may be a multiplication


# --- networks -------------------------------------------------------------------------------------


def test_patches_are_squares_of_the_picture():
    pictures = np.arange(2 * 28 * 28, dtype=np.float32).reshape(2, 28, 28, 1)
    found = jax.jit(vit.patches, static_argnums=1)(pictures, 7)
    assert found.shape == (2, 16, 49)
    for row in range(4):
        for column in range(4):
            square = pictures[:, 7 * row : 7 * row + 7, 7 * column : 7 * column + 7]
            np.testing.assert_array_equal(found[:, 4 * row + column], square.reshape(2, 49))


def test_patches_keep_all_channels():
    features = np.arange(2 * 7 * 7 * 3, dtype=np.float32).reshape(2, 7, 7, 3)
    found = jax.jit(vit.patches, static_argnums=1)(features, 1)
    np.testing.assert_array_equal(found, features.reshape(2, 49, 3))


def test_groups_of_channels_are_normalised_as_in_flax():
    features = np.random.default_rng(0).normal(2, 3, (2, 7, 7, 6)).astype(np.float32)
    norm = linen.GroupNorm(3, use_bias=False, use_scale=False)
    expected = jax.jit(norm.apply)({}, features)
    found = jax.jit(vit.normalised, static_argnums=1)(features, 3)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("joined", [False, True])
def test_a_transformer_takes_features_of_any_size(joined):
    sizes = vit.Sizes(1, 8, 1, 2, 12, input_groups=2, joined=joined)
    features = np.random.default_rng(0).normal(size=(3, 7, 7, 4)).astype(np.float32)
    params, apply = vit.make(sizes, features)
    logits = jax.jit(apply)(params, features)
    assert logits.shape == (3, 10)
    np.testing.assert_allclose(jax.jit(apply)(params, 5 * features), logits, rtol=1e-3, atol=1e-4)
    assert params["head"]["kernel"].shape == (8 * 49 if joined else 8, 10)


@pytest.mark.usefixtures("quick_compiles")
def test_clipped_sums_are_those_of_vmap(problem):
    examples = jax.tree.map(lambda x: x[:24], problem.data)
    batch = sampling.Batch(examples, np.arange(24) >= 21)
    studies.assert_clipped_as_by_vmap(problem, study.vmap_sum, batch)


def test_an_example_is_not_touched_by_the_others(problem):
    examples = jax.tree.map(lambda x: x[:6], problem.data)
    others = jax.tree.map(lambda x: np.concatenate([x[:1], 0 * x[1:]]), examples)
    losses_fn = jax.jit(problem.losses_fn)
    losses, changed = (losses_fn(problem.params, batch, None) for batch in (examples, others))
    np.testing.assert_allclose(changed[0], losses[0], rtol=1e-6)
    assert np.all(np.abs(changed[1:] - losses[1:]) > 1e-3)


# --- the whole ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_compiles")
def test_the_study_is_complete(tmp_path):
    config = f"{RUN}\n[model]\n{NETWORKS['cnn']}{REST}"
    outcomes = studies.run_small(images.main, tmp_path, config)
    studies.assert_complete(outcomes, tmp_path, epsilon=5.0)


@pytest.mark.usefixtures("quick_compiles")
def test_a_private_run_of_nnx_is_found_done(tmp_path):
    """Its parameters are a tree of another kind, which a checkpoint has to give back."""
    (tmp_path / "small.toml").write_text(RUN)
    settings, _ = study.read_config(tmp_path / "small.toml")
    problem = images.make_problem(table_of("vit"))
    run = study.Study(problem, settings, settings.plan(300), tmp_path)
    points = run.run_private()
    assert points[-1].step == 2
    assert run.run_private() == points


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("images_*.toml")), ids=lambda path: path.stem)
def test_shipped_configurations_are_understood(path):
    settings, table = study.read_config(path)
    options, sizes, _ = images.read_model(table)
    assert (settings.epsilon, settings.delta) == (3.0, 1e-5)
    assert options.kind == ("vit" if path.stem.startswith("images_vit") else "cnn")
    assert type(sizes).__module__ == f"parts.{options.kind}"


def test_unknown_networks_are_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match=r"kind = 'rnn'; there are \['cnn', 'vit'\]"):
        images.make_problem({"kind": "rnn"})


def test_unknown_sizes_are_refused_with_those_that_there_are(kind):
    with pytest.raises(ValueError, match=r"no setting \['depth'\]; there are \[.*'hidden'"):
        images.make_problem(table_of(kind) | {"depth": 3})


def test_a_patch_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="patch must divide 28, the rows of a picture; got 5"):
        images.make_problem(table_of("vit") | {"patch": 5})
