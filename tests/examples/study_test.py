"""The frame of the examples: three trainings on the same batches, a table, settings that are checked."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import study
import study_report
from support import studies

from bk_jax import privacy, sampling

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)).astype(np.float32)
DATA = {"x": X, "y": (X.sum(axis=1) + 1).astype(np.float32)}
CONFIG = """
[run]
epsilon = 4.0
delta = 1e-3
epochs = 2
batch_size = 20
physical_batch_size = 8
clip_norm = 0.5
seed = 3
rounds = 1
"""


def losses_fn(params, examples, frozen):
    return (examples["x"] @ params["w"] + frozen - examples["y"]) ** 2


def make_problem(model):
    params = {"w": np.zeros(3, np.float32)}
    evaluate = lambda p: {"w0": p["w"][0], "norm": jnp.linalg.norm(p["w"])}  # noqa: E731
    optimizer = optax.sgd(model.get("learning_rate", 0.1))
    return study.Problem(params, losses_fn, DATA, evaluate, optimizer, np.float32(1))


def make_study(tmp_path, *, clip_norm, noise_multiplier, **settings):
    """Of 6 steps, with parts of 8 rows of batches of about 20."""
    chosen = study.Settings(9.0, 1e-3, 2, 20, 8, clip_norm, seed=3, rounds=1, **settings)
    plan = privacy.PrivacyPlan(
        num_examples=60,
        batch_size=20,
        steps=6,
        delta=1e-3,
        noise_multiplier=noise_multiplier,
        l2_clip_norm=clip_norm,
        pld_interval=100.0,
    )
    return study.Study(make_problem({}), chosen, plan, tmp_path)


def last_norms(a_study):
    """Of the parameters at the end of the private run, the plain one, and the one by vmap."""
    runs = study.ways(a_study.problem, a_study.plan)
    points = [a_study.run_private(), *(a_study.run_way(*run) for run in runs.items())]
    return [p[-1].metrics["norm"] for p in points]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    directory = tmp_path_factory.mktemp("study")

    def main(argv):
        return study.main("small", "A small study", make_problem, argv)

    return studies.run_small(main, directory, CONFIG), directory


def test_a_study_has_three_trainings_and_a_plot(small):
    outcomes, directory = small
    studies.assert_complete(outcomes, directory, epsilon=4.0)
    assert [outcome.points[-1].step for outcome in outcomes] == [6, 6, 6]
    assert len(outcomes[1].points) == 6


def test_steps_are_timed_again_beside_the_trainings_of_the_last_run(small, capsys):
    outcomes, directory = small
    arguments = ["--config", str(directory / "small.toml"), "--directory", str(directory / "out")]
    again = study.main("small", "A small study", make_problem, [*arguments, "--time-again"])
    assert [o.points for o in again] == [o.points for o in outcomes]
    assert [o.memory for o in again] == [o.memory for o in outcomes]
    assert "before training" not in capsys.readouterr().out


def test_steps_can_not_be_timed_again_before_there_are_trainings(tmp_path):
    a_study = make_study(tmp_path, clip_norm=1.0, noise_multiplier=1.0)
    with pytest.raises(FileNotFoundError, match="without --time-again first"):
        a_study.run(time_again=True)


def test_its_table_is_markdown(small, capsys):
    study_report.print_table(small[0], delta=1e-3)
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[0] == "| training | steps | w0 | norm | epsilon | time | memory |"
    assert lines[1] == "|---|---|---|---|---|---|---|"
    assert [line.split(" | ")[0] for line in lines[2:5]] == [f"| {name}" for name in studies.NAMES]
    assert " ∞ | 1.00 | 1.00 |" in lines[2]
    assert "delta 0.001" in lines[-1]


def test_all_three_see_the_same_batches(tmp_path, monkeypatch):
    seen = []
    draw = sampling.PoissonSampler.indices

    def indices(sampler, key):
        chosen = draw(sampler, key)
        if sampler.batch_size == 20:  # not the rehearsal of fit, which samples nobody
            seen.append(chosen.tolist())
        return chosen

    monkeypatch.setattr(sampling.PoissonSampler, "indices", indices)
    last_norms(make_study(tmp_path, clip_norm=1.0, noise_multiplier=2.0))
    assert len(seen) == 18
    assert seen[:6] == seen[6:12] == seen[12:]
    assert len({tuple(batch) for batch in seen}) == 6


def test_without_noise_both_private_trainings_agree(tmp_path):
    """Noise of 1e-2 * 1e-2 on a sum, over 20, in 6 steps of 0.1: a deviation of 1.2e-6 at the end."""
    private, plain, by_vmap = last_norms(
        make_study(tmp_path, clip_norm=1e-2, noise_multiplier=1e-2)
    )
    assert private == pytest.approx(by_vmap, abs=1e-5)
    assert 0 < private <= 6 * 0.1 * 1e-2 * 2  # every step is clipped; a batch may be twice as large
    assert plain > 10 * private


def test_without_noise_and_clipping_all_trainings_agree(tmp_path):
    """Noise of 1e-3 * 1e2 on a sum, over 20, in 6 steps of 0.1: a deviation of 1.2e-3 at the end."""
    private, plain, by_vmap = last_norms(make_study(tmp_path, clip_norm=1e2, noise_multiplier=1e-3))
    assert plain > 1
    assert private == pytest.approx(plain, abs=6e-3)
    assert by_vmap == pytest.approx(plain, abs=6e-3)


def test_clipped_sums_are_those_of_vmap(tmp_path):
    a_study = make_study(tmp_path, clip_norm=1.0, noise_multiplier=1.0)
    batch = next(a_study.loader().physical_batches(study.random.key(0)))
    studies.assert_clipped_as_by_vmap(a_study.problem, study.vmap_sum, batch)


@pytest.mark.parametrize(
    ("allowed", "planned", "taken"),
    [(None, 400, 400), (500, 400, 400), (50, 400, 40), (3, 400, 20), (3, 6, 3)],
)
def test_the_usual_way_stops_at_a_report(tmp_path, allowed, planned, taken):
    a_study = make_study(tmp_path, clip_norm=1.0, noise_multiplier=1.0, vmap_steps=allowed)
    plan = study.dataclasses.replace(a_study.plan, steps=planned)
    assert study.dataclasses.replace(a_study, plan=plan).steps_by_vmap() == taken


def test_a_shorter_run_stands_beside_as_many_private_steps():
    def outcome(name, steps):
        points = [study_report.Point(n, {"accuracy": n / 100}, n / 10) for n in steps]
        return study_report.Outcome(name, points, 2.0, 3.0)

    runs = [outcome("not private", [10, 20]), outcome("private", [10, 20])]
    rows = study_report.table([*runs, outcome("private, by vmap(grad)", [10])])
    assert rows[3] == ("private, by vmap(grad)", "10", "0.1", "1.00", "2.00", "3.00")
    assert rows[4] == ("private, after 10 steps", "10", "0.1", "1.00", "2.00", "3.00")


def test_settings_that_do_not_exist_are_refused_with_those_that_do(tmp_path):
    path = tmp_path / "wrong.toml"
    path.write_text(CONFIG + "batchsize = 3\n")
    known = r"no setting \['batchsize'\]; there are \['average', 'bands', 'batch_size', 'clip_norm'"
    with pytest.raises(ValueError, match=known):
        study.read_config(path)


def test_settings_that_are_needed_are_named(tmp_path):
    path = tmp_path / "short.toml"
    path.write_text("[run]\nepsilon = 1.0\ndelta = 1e-5\nepochs = 1\n")
    with pytest.raises(
        ValueError, match=r"lacks \['batch_size', 'clip_norm', 'physical_batch_size'\]"
    ):
        study.read_config(path)


def test_lists_of_a_configuration_become_tuples():
    @study.dataclasses.dataclass(frozen=True)
    class Sizes:
        widths: tuple[int, ...]

    assert study.from_table(Sizes, {"widths": [1, 2]}, "here").widths == (1, 2)
