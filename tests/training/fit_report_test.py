"""When the trainer stops, and what it prints, records and draws."""

from __future__ import annotations

import io
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rich.console
from support.fits import DATA, OPTIMIZER, PARAMS, PLAN, equal, fit, loss_fn

from bk_jax import training
from bk_jax.training.checkpoints import place_of_latest
from bk_jax.training.history import Point
from bk_jax.training.plot import draw
from bk_jax.training.progress import Progress
from bk_jax.training.recorder import Recorder
from bk_jax.training.steps import Seen

PNG = b"\x89PNG\r\n\x1a\n"


def test_the_run_ends_before_the_step_that_spends_too_much(tmp_path):
    printed, kept = io.StringIO(), []
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), PARAMS)
    result = training.fit(
        loss_fn, params, DATA,
        plan=PLAN,
        optimizer=OPTIMIZER,
        directory=tmp_path / "new" / "folder",
        stop_at_epsilon=PLAN.epsilon(5),
        report_every=2,
        evaluate=lambda params: kept.append(params) or {"accuracy": np.nan},
        console=rich.console.Console(file=printed, width=40),
    )  # fmt: skip
    assert (result.steps, result.stopped) == (5, "stop_at_epsilon")
    assert result.epsilon == PLAN.epsilon(5)
    equal(params, PARAMS)  # neither these nor what evaluate has seen is taken away
    assert len({np.asarray(seen["w"]).tobytes() for seen in kept}) == 3
    check_lines(printed.getvalue().splitlines())
    check_files(tmp_path / "new" / "folder")


def check_lines(lines):
    assert [line.split(":")[0] for line in lines[:-1]] == ["step 2/5", "step 4/5", "step 5/5"]
    assert f": epsilon {PLAN.epsilon(2):.3g}, " in lines[0]
    assert "examples/s, accuracy nan [not private: loss 0." in lines[0]
    spent = f"epsilon {PLAN.epsilon(5):.3g} at delta 0.001"
    assert lines[-1] == f"stop_at_epsilon after 5 of 8 steps: {spent}"


def check_files(folder):
    saved = json.loads((folder / "history.json").read_text())
    assert "not private" in saved["note"]
    assert [point["step"] for point in saved["points"]] == [2, 4, 5]
    assert saved["points"][0]["metrics"] == {"accuracy": None}
    assert (folder / "progress.png").read_bytes().startswith(PNG)
    assert not list(folder.glob("*.new"))
    assert place_of_latest(folder / "checkpoints")["steps"] == 5
    assert folder.stat().st_mode & 0o077 == 0


def test_a_target_that_the_first_step_exceeds_is_refused(tmp_path):
    with pytest.raises(ValueError, match="the first step of the plan spends"):
        fit(tmp_path, stop_at_epsilon=1e-3)


def test_a_terminal_gets_a_bar():
    printed = io.StringIO()
    console = rich.console.Console(file=printed, width=160, force_terminal=True)
    with Progress(8, 2, console) as progress:
        progress.step(4)
        progress.point(Point(4, 0.5, 10.0, {}, 0.7, 0.1, 0))
    text = printed.getvalue()
    assert "4/8" in text
    assert "[not private: loss 0.7, clipped 10%]" in text
    assert "step 4/8" not in text


def test_the_plot_marks_what_is_not_private():
    points = [Point(n, n / 9, 1.0, {"accuracy": 0.5}, 1.0, 0.5, 0) for n in (1, 2)]
    labels = [axes.get_ylabel() for axes in draw(points, 1.0).axes]
    assert labels == ["training loss\n(not private)", "", "privacy spent, ε"]


def test_means_weigh_every_example_once(tmp_path):
    quiet = Progress(8, 0, rich.console.Console(file=io.StringIO()))
    recorder = Recorder(PLAN, tmp_path, [], None, quiet, None)
    for seen in (Seen(0, 0.0, 0.0, 0), Seen(1, 8.0, 1.0, 1), Seen(3, 4.0, 1 / 3, 2)):
        recorder.step(3, seen)
    recorder.report(3, None)
    (point,) = recorder.points
    assert (point.loss, point.clipped, point.nonfinite) == (5.0, 0.5, 3)
    assert "NaN or infinite gradients 3]" in point.describe()
    recorder.report(3, None)  # nothing new
    assert len(recorder.points) == 1
