"""What must hold after a run that was broken off many times, from its log and its ledger.

- No key was used twice: the numbers of steps only go up, and all keys differ.
- The accounting lost nothing: as many steps are on record as the plan has, and epsilon is that of the
  uninterrupted run.
- The model is that of the uninterrupted run without the steps that were forfeited, to the bit: a loop
  without `fit` takes them again, in one process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.soak import life


@dataclasses.dataclass(frozen=True)
class Story:
    """What the log says.

    Attributes:
      keys: noise keys by step.
      lost: steps whose effect no checkpoint had when the next process began.
      lives: how many processes there were.
      problems: what must not happen.
    """

    keys: Mapping[int, str]
    lost: frozenset[int]
    lives: int
    problems: tuple[str, ...]


def read(lines: list[str]) -> Story:
    """Reads a log.

    >>> story = read(["life 0", "take 0 a", "take 1 b", "life 1", "take 2 c", "end 3"])
    >>> sorted(story.keys), sorted(story.lost), story.problems
    ([0, 1, 2], [1], ())
    """
    keys: dict[int, str] = {}
    lost: set[int] = set()
    used: set[str] = set()
    problems: list[str] = []
    reached, lives, resumed = -1, 0, None
    for line in lines:
        word, number, *rest = line.split()
        at = int(number)
        if word == "life":
            lives, resumed = lives + 1, at
            continue
        if resumed is not None:  # the first that is known of the ledger in this life
            lost |= set(range(resumed, at))
            resumed = None
        if word == "take":
            if at <= reached:
                problems.append(f"step {at} was handed out after step {reached}")
            if rest[0] in used:
                problems.append(f"the key of step {at} had been handed out before")
            keys[at], reached = rest[0], at
            used.add(rest[0])
    return Story(keys, frozenset(lost), lives, tuple(problems))


def replayed(story: Story, folder: Path, steps: int) -> tuple[dict[str, np.ndarray], list[str]]:
    """Parameters of the run without interruptions and without what was lost; and keys that differ."""
    from bk_jax.privacy import open_ledger
    from bk_jax.sampling import Loader, sampler_of
    from bk_jax.sampling.planned import Nobody
    from bk_jax.training import steps as training_steps

    plan = life.plan(steps)
    grad_fn = training_steps.make_grad_fn(life.loss_fn, plan, {}, ())
    take_step = training_steps.step_as_one(grad_fn, life.optimizer(), {})
    state = training_steps.initial_state(life.optimizer(), life.start())
    nobody, problems = Loader(life.data(), Nobody.of(plan), None), []
    with open_ledger(folder / "replay.ledger", plan, key=life.secret()) as ledger:
        sampler_at = sampler_of(plan, ledger.partition_key())
        for step in ledger:
            if story.keys.get(step.number, life.words(step.noise_key)) != life.words(
                step.noise_key
            ):
                problems.append(f"step {step.number} had another key than its own")
            if step.number in story.lost:
                continue
            loader = dataclasses.replace(nobody, sampler=sampler_at(step.number))
            state, _ = take_step(state, loader, step)
    return {name: np.asarray(leaf) for name, leaf in state.params.items()}, problems


def problems_of(log: Path, result: Path, folder: Path, steps: int) -> tuple[Story, list[str]]:
    """Everything that is wrong, and what happened."""
    from bk_jax.privacy.pages import newest

    story = read(log.read_text().splitlines())
    problems = list(story.problems)
    ledger = folder / "run.ledger"
    recorded = newest(ledger, ledger.read_bytes()).steps
    if recorded != steps:
        problems.append(f"{recorded} steps are on record, the plan has {steps}")
    unknown = set(range(steps)) - story.keys.keys() - story.lost
    problems += [f"step {number} is neither known nor lost" for number in sorted(unknown)]
    params, wrong = replayed(story, log.parent, steps)
    problems += wrong + differences(params, dict(np.load(result)), life.plan(steps).epsilon())
    return story, problems


def differences(params: Mapping[str, Any], found: Mapping[str, Any], epsilon: float) -> list[str]:
    """Of the uninterrupted run and the one that was found."""
    lines = [
        f"{name} is {found[name]}, uninterrupted {params[name]}"
        for name in params
        if params[name].tobytes() != found[name].tobytes()
    ]
    if float(found["epsilon"]) != epsilon:
        lines.append(f"epsilon is {float(found['epsilon'])}, uninterrupted {epsilon}")
    return lines
