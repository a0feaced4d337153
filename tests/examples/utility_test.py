"""The runs that say what privacy costs, at small size, and the parts that the recipes need."""

from __future__ import annotations

import json
from pathlib import Path

import images
import jax
import numpy as np
import pytest
import recipes
import study
import text
import utility
import utility_report
from parts import adapting, bert, keeping, scattering
from support import studies

ROOT = Path(__file__).parents[2]
CONFIG = """
[run]
epsilon = 2.0
delta = 1e-4
epochs = 1
batch_size = 152
physical_batch_size = 200
clip_norm = 1.0
clipping = "automatic"
average = 0.9
reports = 1
[plain]
batch_size = 100
epochs = 1
learning_rate = 1e-2
[model]
widths = [4]
learning_rate = 1e-2
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("utility") / "tabular_small.toml"
    path.write_text(CONFIG)
    return path


def run(config, *arguments):
    folder = config.parent
    options = [f"--config={config}", f"--results={folder}", f"--figures={folder}"]
    return utility.main([*options, *arguments])


def test_runs_are_kept_and_not_made_again(config, monkeypatch):
    first = run(config, "--seeds", "0", "--epsilons", "8")
    monkeypatch.setattr(utility, "private_points", None)
    monkeypatch.setattr(utility, "plain_points", None)
    assert run(config, "--seeds", "0", "--epsilons", "8") == utility_report.load_runs(
        config.parent / "tabular_small.json"
    )
    plain, private = first
    assert (plain.epsilon, plain.points[-1].step, plain.batch_size) == (None, 4, 100)
    assert (private.epsilon, private.points[-1].step, private.batch_size) == (8.0, 3, 152)
    assert 7.9 < private.points[-1].epsilon <= 8
    picture = (config.parent / "tabular_small_utility.png").read_bytes()
    assert picture.startswith(studies.PNG)


def test_a_run_that_was_interrupted_is_not_kept(config, monkeypatch):
    monkeypatch.setattr(study.Study, "run_private", lambda *_, **__: [study.Point(1, {}, 1.0)])
    with pytest.raises(KeyboardInterrupt, match="stopped after step 1 of 3: not kept"):
        utility.private_points(utility.read_example(config), 8.0, 0)


def test_the_table_has_means_and_what_is_lost():
    def made(epsilon, seed, value):
        points = [study.Point(1, {"accuracy": value}, 1.0)]
        return utility_report.Run(epsilon, seed, 8, 2.0, 3.0, points)

    rows = utility_report.table([made(3.0, 0, 0.5), made(None, 0, 0.75), made(None, 1, 1.0)])
    assert rows[1] == ("not private", "0.875", "0.750, 1.000", "", "2 s")
    assert rows[2] == ("epsilon 3", "0.500", "0.500", "0.375", "2 s")


def test_an_accuracy_is_compared_if_there_is_one():
    for metrics, name in (({"bits": 3.0, "accuracy of bytes": 0.4}, 1), ({"bits": 3.0}, 0)):
        runs = [utility_report.Run(None, 0, 8, 2.0, 3.0, [study.Point(1, metrics, 1.0)])]
        assert utility_report.metric_of(runs) == list(metrics)[name]


def test_a_configuration_of_no_example_is_refused(tmp_path):
    path = tmp_path / "sounds.toml"
    path.write_text(CONFIG)
    with pytest.raises(ValueError, match="sounds begins with the name of no example"):
        utility.read_example(path)


def test_a_change_reaches_settings_and_model(config):
    example = utility.read_example(config)
    other = recipes.changed(example, {"run": {"average": None}, "model": {"widths": [3]}})
    params = other.problem(0).params
    assert other.settings.average is None
    assert params[0]["w"].shape == (30, 3)
    assert not hasattr(other.problem(0).optimizer.init(params), "average")


def test_changes_that_ship_name_settings_that_there_are():
    table = study.tomllib.loads((ROOT / "configs" / "recipes.toml").read_text())
    settings, model = study.read_config(ROOT / table["example"])
    for change in table["change"]:
        study.dataclasses.replace(settings, **change.get("run", {}))
        assert change.get("model", {}).keys() <= {*model, "optimizer"}
    assert len({change["name"] for change in table["change"]}) == len(table["change"])


def test_results_that_ship_are_of_configurations_that_ship():
    for path in (ROOT / "examples" / "results").glob("*.json"):
        assert (ROOT / "configs" / f"{path.stem}.toml").exists()
        assert json.loads(path.read_text())


def test_correlated_noise_spends_what_a_groups_dp_sgd_spends():
    chosen = study.Settings(4.0, 1e-3, 4, 20, 8, 0.5, bands=2)
    plan = chosen.plan(100)
    assert (plan.steps, plan.batch_size, plan.l2_clip_norm) == (20, 20, 0.5)
    assert plan.participation.sampling_probability == 0.4
    assert 3.99 < plan.epsilon() <= 4.0


# --- fixed wavelets -------------------------------------------------------------------------------


def pictures(count=2):
    return np.random.default_rng(0).integers(0, 256, (count, 28, 28)).astype(np.uint8)


@pytest.fixture(scope="module")
def features():
    return np.asarray(jax.jit(scattering.features)(pictures()))


def test_features_are_averages_of_filtered_pictures(features):
    """The same at full resolution; thinning out folds frequencies over that are nearly zero."""
    fine, coarse, smooth = scattering.filters()

    def average(x):
        return np.fft.ifft2(np.fft.fft2(x) * smooth).real[4::4, 4::4]

    def filtered(x, wavelet):
        return np.abs(np.fft.ifft2(np.fft.fft2(x) * wavelet))

    x = np.pad(pictures()[1] / 255, 2, mode="reflect")
    expected = {
        0: average(x),
        1 + 3: average(filtered(x, fine[3])),
        1 + 8 + 5: average(filtered(x, coarse[5])),
        1 + 16 + 8 * 3 + 5: average(filtered(filtered(x, fine[3]), coarse[5])),
    }
    assert features.shape == (2, 7, 7, 81)
    for channel, values in expected.items():
        error = np.abs(features[1, ..., channel] - values).max()
        assert error < 0.05 * values.max(), channel


def test_a_constant_picture_has_only_an_average():
    found = np.asarray(jax.jit(scattering.features)(np.full((1, 28, 28), 51, np.uint8)))
    np.testing.assert_allclose(found[..., 0], 0.2, rtol=1e-5)
    assert np.abs(found[..., 1:]).max() < 1e-6


def test_mirrored_features_turn_left_and_right_and_directions():
    channels = scattering.mirrored_channels()
    assert sorted(channels) == list(range(81))
    assert channels[channels].tolist() == list(range(81))
    assert channels[:9].tolist() == [0, 1, 8, 7, 6, 5, 4, 3, 2]


def test_features_are_kept(tmp_path, features):
    path = tmp_path / "new" / "kept.npy"
    found = scattering.kept(path, pictures(), chunk=1)
    np.testing.assert_array_equal(found, scattering.kept(path, pictures(0)))
    np.testing.assert_allclose(found, features, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("count", [0, 1, 4, 5])
def test_what_is_kept_is_made_once_and_in_chunks(tmp_path, count):
    rows, sizes = np.arange(2.0 * count).reshape(count, 2), []

    def doubled(part):
        sizes.append(len(part))
        return 2 * part

    for path in (None, tmp_path / "new" / "kept.npy", tmp_path / "new" / "kept.npy"):
        np.testing.assert_array_equal(keeping.kept(path, rows, doubled, chunk=4), 2 * rows)
    assert sizes == 2 * {0: [0], 1: [1], 4: [4], 5: [4, 1]}[count]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["kept.npy"]


def test_a_mirrored_loss_is_the_mean_over_both():
    table = {"kind": "cnn", "channels": (2,), "kernels": (8,), "hidden": 0, "groups": 1}
    table |= {"learning_rate": 1e-2, "num_examples": 3}
    once, both = (images.make_problem(table | {"mirrored": m}) for m in (False, True))
    turned = once.data | {"image": once.data["image"][:, :, ::-1]}
    losses_fn = jax.jit(once.losses_fn)
    losses = [losses_fn(once.params, data, None) for data in (once.data, turned)]
    found = jax.jit(both.losses_fn)(once.params, once.data, None)
    np.testing.assert_allclose(found, (losses[0] + losses[1]) / 2, rtol=1e-5)


# --- public reviews -------------------------------------------------------------------------------


def test_an_encoder_is_adapted_once_and_kept(tmp_path, monkeypatch):
    sizes = bert.Sizes(layers=1, width=8, hidden=12, heads=2, vocabulary=40, positions=8)
    encoder, head = bert.random_params(sizes), text.new_head(8)
    rows = [("good", 1), ("bad", 0)] * 4
    tokens = np.tile([[5, 6, 0, 0], [7, 8, 0, 0]], (4, 1)).astype(np.int32)
    monkeypatch.setattr(adapting, "public_reviews", lambda: iter(rows))
    monkeypatch.setattr(adapting.reviews, "tokenize", lambda texts, length: tokens)
    settings = adapting.Adapting(steps=3, batch_size=4, learning_rate=1e-2, length=4)
    start = (encoder, head, 2)
    first = adapting.adapted(tmp_path / "a" / "b.npz", settings, *start)
    monkeypatch.setattr(adapting, "public_reviews", None)
    again = adapting.adapted(tmp_path / "a" / "b.npz", settings, *start)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    np.testing.assert_array_equal(first[0]["embeddings"]["word"], encoder["embeddings"]["word"])
    assert np.any(first[1]["kernel"] != head["kernel"])


def test_public_reviews_end_in_their_last_words():
    ending, label = next(adapting.public_reviews())
    assert len(ending.split()) == adapting.WORDS
    assert ending.endswith("this film doesn't have much of a plot.")
    assert label == 0
