"""Handwritten digits, learned privately: DP-Adam on scikit-learn's 8 x 8 images.

The pieces that the privacy statement rests on are the library's: the plan and its epsilon
(`privacy.plan`), Poisson batches at a fixed padded shape (`sampling.Loader`), clipping and noise
(`dp_value_and_grad`), and a ledger that hands out the keys of every step once
(`privacy.open_ledger`). The same network is trained without privacy next to it.

    python examples/digits.py --epsilon 3 --epochs 30
"""

from __future__ import annotations

import argparse
import functools
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import study
from comparison import clipped_by_vmap, custom_calls, median_times, with_normal_noise
from digits_report import (
    Point,
    print_results,
    print_setting,
    print_times,
    save_plot,
    waiting,
    watch,
)
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import bk_jax
from bk_jax import privacy, sampling

REPORTS = 30  # points of a run


class Examples(NamedTuple):
    """Images `[n, 64]` in [-1, 1] and their labels `[n]`."""

    images: Any
    labels: Any


def load_data() -> tuple[Examples, Examples]:
    """Training and held-out examples; split and scale do not look at the values."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 8 - 1).astype(np.float32)
    parts = train_test_split(images, labels.astype(np.int32), test_size=0.2, random_state=0)
    return Examples(parts[0], parts[2]), Examples(parts[1], parts[3])


# --- model: ordinary JAX, which knows nothing of privacy ------------------------------------------

Params = list[dict[str, jax.Array]]


def init_params(key: jax.Array, widths: Sequence[int]) -> Params:
    """Dense layers with Glorot weights and zero biases."""
    init = jax.nn.initializers.glorot_normal()
    keys = jax.random.split(key, len(widths) - 1)
    shapes = itertools.pairwise(widths)
    return [{"w": init(k, s), "b": jnp.zeros(s[1])} for k, s in zip(keys, shapes, strict=True)]


def predict(params: Params, images: jax.Array) -> jax.Array:
    """Logits `[n, 10]`."""
    for layer in params[:-1]:
        images = jnp.tanh(images @ layer["w"] + layer["b"])
    return images @ params[-1]["w"] + params[-1]["b"]


def losses(params: Params, examples: Examples) -> jax.Array:
    logits = predict(params, examples.images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, examples.labels)


def mean_loss(params: Params, examples: Examples) -> jax.Array:
    return jnp.mean(losses(params, examples))


@jax.jit
def evaluate(params: Params, examples: Examples) -> tuple[jax.Array, jax.Array]:
    """Accuracy and loss. On held-out data they cost no privacy: they are post-processing."""
    right = jnp.argmax(predict(params, examples.images), axis=1) == examples.labels
    return jnp.mean(right), mean_loss(params, examples)


# --- steps: the only difference between private and not is the gradient ---------------------------

State = tuple[Params, Any]
GradFn = Callable[[Params, sampling.Batch, jax.Array], Params]
Step = Callable[[State, sampling.Batch, jax.Array], State]


def plain_grad(normalize_by: float) -> GradFn:
    """The gradient of the sum of losses over the expected batch size."""

    def loss(params: Params, batch: sampling.Batch) -> jax.Array:
        each = losses(params, batch.examples)
        return jnp.sum(jnp.where(batch.is_padding_example, 0, each)) / normalize_by

    return lambda params, batch, key: jax.grad(loss)(params, batch)


def private_grad(**options: float) -> GradFn:
    """The same, with each example's gradient clipped and noise added to the sum."""
    grad_fn = bk_jax.dp_value_and_grad(mean_loss, **options)

    def grads(params: Params, batch: sampling.Batch, key: jax.Array) -> Params:
        noise, padding = key if grad_fn.noise_multiplier else None, batch.is_padding_example
        return grad_fn(params, batch.examples, key=noise, is_padding_example=padding)[1]

    return grads


def vmap_grad(l2_clip_norm: float, noise_multiplier: float, normalize_by: float) -> GradFn:
    """The same in the usual way, which forms every example's gradient."""

    def grads(params: Params, batch: sampling.Batch, key: jax.Array) -> Params:
        sums = clipped_by_vmap(mean_loss, params, *batch, clip_norm=l2_clip_norm)
        noisy = with_normal_noise(sums, key, noise_multiplier * l2_clip_norm)
        return jax.tree.map(lambda x: x / normalize_by, noisy)

    return grads


def make_step(grads: GradFn, optimizer: optax.GradientTransformation) -> Step:
    def step(state: State, batch: sampling.Batch, key: jax.Array) -> State:
        params, optimizer_state = state
        gradient = grads(params, batch, key)
        updates, optimizer_state = optimizer.update(gradient, optimizer_state, params)
        return optax.apply_updates(params, updates), optimizer_state

    return step


def make_problem(model: dict[str, Any]) -> study.Problem:
    """For `utility.py`: one hidden layer."""
    train, held_out = load_data()
    params = init_params(jax.random.key(model.get("seed", 0)), (64, model["width"], 10))
    return study.Problem(
        params,
        losses_fn=lambda params, examples, frozen: losses(params, examples),
        data=train,
        evaluate=lambda params: {"accuracy": evaluate(params, held_out)[0]},
        optimizer=optimizer_of(model),
    )


def optimizer_of(model: dict[str, Any]) -> optax.GradientTransformation:
    if model.get("optimizer") == "sgd":
        return optax.sgd(model["learning_rate"], momentum=0.9)
    return optax.adam(model["learning_rate"])


# --- the run --------------------------------------------------------------------------------------


class Task(NamedTuple):
    """What private and ordinary training have in common."""

    loader: sampling.Loader
    held_out: Examples
    plan: privacy.PrivacyPlan
    key: jax.Array  # secret; batches and noise come from it


def make_task(args: argparse.Namespace, key: jax.Array) -> Task:
    """Data, and the plan with the least noise that keeps the run within (epsilon, delta)."""
    train, held_out = load_data()
    plan = privacy.plan(
        target_epsilon=args.epsilon,
        delta=args.delta,
        num_examples=len(train.labels),
        batch_size=args.batch_size,
        epochs=args.epochs,
        l2_clip_norm=args.clip_norm,
        max_batch_size="auto",
    )
    return Task(sampling.Loader(train, sampling.PoissonSampler.of(plan)), held_out, plan, key)


def fit(task: Task, step: Step, state: State, epsilon: Callable[[int], float]) -> Iterator[Point]:
    """Trains from `state` and yields about thirty points of the way."""

    def point(taken: int) -> Point:
        accuracy, loss = evaluate(state[0], task.held_out)
        return Point(taken, float(accuracy), float(loss), epsilon(taken))

    plan, every = task.plan, max(1, task.plan.steps // REPORTS)
    yield point(0)
    with (
        tempfile.TemporaryDirectory() as folder,  # a run that is to be resumed keeps its ledger
        privacy.open_ledger(Path(folder, "run.ledger"), plan, key=task.key) as ledger,
    ):
        for _, noise_key, sampling_key in ledger:
            state = step(state, task.loader.batch(sampling_key), noise_key)
            if ledger.steps % every == 0 or ledger.steps == plan.steps:
                yield point(ledger.steps)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train a network on handwritten digits with differential privacy, and without.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--epsilon", type=float, default=3.0, help="privacy to spend in the whole run")
    add("--delta", type=float, default=1e-5, help="the delta that goes with epsilon")
    add("--epochs", type=float, default=30.0, help="expected passes over the data")
    add("--batch-size", type=int, default=256, help="expected number of examples in a batch")
    add("--clip-norm", type=float, default=1.0, help="largest norm of one example's gradient")
    add("--learning-rate", type=float, default=5e-3, help="step size of Adam")
    add("--width", type=int, default=512, help="features of the two hidden layers")
    add("--rounds", type=int, default=30, help="how often to time each step")
    add("--seed", type=int, help="makes the run repeatable, hence no longer private")
    add("--plot", type=Path, default=Path("digits.png"), help="where to save the plot")
    return parser.parse_args(argv)


def compile_steps(
    plan: privacy.PrivacyPlan, optimizer: optax.GradientTransformation, *inputs: Any
) -> dict[str, Any]:
    """The steps to train with, and two more to compare their times with."""
    options = plan.options()
    grads: dict[str, GradFn] = {
        "not private": plain_grad(plan.batch_size),
        "private": private_grad(**options),
        "private, before noise": private_grad(**options | {"noise_multiplier": 0.0}),
        "private, by vmap(grad)": vmap_grad(**options),
    }
    steps = {name: jax.jit(make_step(grad, optimizer)) for name, grad in grads.items()}
    return {name: step.lower(*inputs).compile() for name, step in steps.items()}


def time_steps(steps: dict[str, Any], rounds: int, *inputs: Any) -> dict[str, float]:
    """Median milliseconds; the slow one apart, it would empty the others' caches."""
    runs = {name: functools.partial(step, *inputs) for name, step in steps.items()}
    slow = {"private, by vmap(grad)": runs.pop("private, by vmap(grad)")}
    return median_times(runs, rounds) | median_times(slow, min(rounds, 3))


def main(argv: Sequence[str] | None = None) -> None:
    """Calibrates, trains twice, times the steps, and reports."""
    args = parse_args(argv)
    init_key, run_key = jax.random.split(bk_jax.random.key(args.seed))
    with waiting("finding the noise that this privacy needs"):
        task = make_task(args, run_key)
    params = init_params(init_key, (64, args.width, args.width, 10))
    optimizer = optax.adam(args.learning_rate)
    state = (params, optimizer.init(params))
    inputs = (state, task.loader.batch(bk_jax.random.key(0)), bk_jax.random.key(1))
    with waiting("compiling the steps"):
        steps = compile_steps(task.plan, optimizer, *inputs)
    print_setting(args, task, params, custom_calls(steps["private"]))

    meters = {"private": task.plan.epsilon, "not private": lambda _: np.inf}
    histories = {  # both see the same batches
        name: watch(name, task.plan.steps, fit(task, steps[name], state, epsilon))
        for name, epsilon in meters.items()
    }
    print_results(histories, args.delta)
    with waiting("timing the steps in turn"):
        times = time_steps(steps, args.rounds, *inputs)
    print_times(times)
    save_plot(args.plot, histories, args.epsilon, args.delta)


if __name__ == "__main__":
    main()
