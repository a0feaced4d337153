"""Handwritten digits, learned privately: DP-Adam on scikit-learn's 8 x 8 images.

Everything that the privacy statement rests on is in this file: Poisson sampling at a fixed padded
shape, clipping and noise (`bk_jax.dp_value_and_grad`), and the accounting of exactly that mechanism
(`dp_accounting`). The same network is trained without privacy next to it.

    python examples/digits.py --epsilon 3 --epochs 30
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.stats
from comparison import custom_calls, median_times, vmap_grad
from digits_report import (
    Point,
    print_results,
    print_setting,
    print_times,
    save_plot,
    waiting,
    watch,
)
from dp_accounting import pld
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import bk_jax

OVERFULL_CHANCE = 1e-12  # that any batch of a run exceeds its fixed size: far below every delta


# --- data: a fixed shape, filled by Poisson sampling ----------------------------------------------


class Examples(NamedTuple):
    """Images `[n, 64]` in [-1, 1] and their labels `[n]`."""

    images: Any
    labels: Any


class Batch(NamedTuple):
    """A fixed number of rows, of which some are padding."""

    examples: Examples
    is_padding: Any


def load_data() -> tuple[Examples, Examples]:
    """Training and held-out examples; split and scale do not look at the values."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 8 - 1).astype(np.float32)
    parts = train_test_split(images, labels.astype(np.int32), test_size=0.2, random_state=0)
    return Examples(parts[0], parts[2]), Examples(parts[1], parts[3])


def padded_size(num_examples: int, probability: float, steps: int) -> int:
    """Rows that no batch of `steps` Poisson samples exceeds, but for `OVERFULL_CHANCE`."""
    size = scipy.stats.binom.isf(OVERFULL_CHANCE / steps, num_examples, probability)
    return min(num_examples, int(size))


def poisson_batch(data: Examples, probability: float, size: int, rng: np.random.Generator) -> Batch:
    """Takes every example independently with the given probability, and pads to `size` rows."""
    chosen = np.flatnonzero(rng.random(len(data.labels)) < probability)
    if len(chosen) > size:
        raise RuntimeError(
            f"sampled {len(chosen)} examples where {size} fit. Dropping some would not be the "
            "mechanism that is accounted for, so the run stops here; start it again."
        )
    padding = size - len(chosen)
    images = np.pad(data.images[chosen], ((0, padding), (0, 0)))
    labels = np.pad(data.labels[chosen], (0, padding))
    return Batch(Examples(images, labels), np.arange(size) >= len(chosen))


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


# --- privacy: the event says exactly what a run does ----------------------------------------------


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """A Poisson sample and its clipped sum, with noise of `noise_multiplier` clip norms."""

    probability: float
    noise_multiplier: float

    def event(self, steps: int) -> dp_accounting.DpEvent:
        """What `steps` steps release, in the words of `dp_accounting`."""
        gaussian = dp_accounting.GaussianDpEvent(self.noise_multiplier)
        sampled = dp_accounting.PoissonSampledDpEvent(self.probability, gaussian)
        return dp_accounting.SelfComposedDpEvent(sampled, steps)

    def epsilon(self, steps: int, delta: float) -> float:
        """What `steps` steps spend, for data sets that differ by one record more or less."""
        return float(accountant().compose(self.event(steps)).get_epsilon(delta)) if steps else 0.0


def accountant() -> pld.PLDAccountant:
    """On a coarser grid than the default: quicker, and it can only overstate epsilon."""
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    return pld.PLDAccountant(relation, value_discretization_interval=1e-3)


def calibrate(probability: float, steps: int, epsilon: float, delta: float) -> Mechanism:
    """The mechanism with the least noise that keeps `steps` steps within (epsilon, delta)."""
    noise_multiplier = dp_accounting.calibrate_dp_mechanism(
        accountant, lambda sigma: Mechanism(probability, sigma).event(steps), epsilon, delta
    )
    return Mechanism(probability, float(noise_multiplier))


# --- steps: the only difference between private and not is the gradient ---------------------------

State = tuple[Params, Any]
GradFn = Callable[[Params, Batch, jax.Array], Params]
Step = Callable[[State, Batch, jax.Array], State]


def plain_grad(batch_size: int) -> GradFn:
    """The gradient of the sum of losses over the expected batch size."""

    def loss(params: Params, batch: Batch) -> jax.Array:
        return jnp.sum(jnp.where(batch.is_padding, 0, losses(params, batch.examples))) / batch_size

    return lambda params, batch, key: jax.grad(loss)(params, batch)


def private_grad(clip_norm: float, noise_multiplier: float, batch_size: int) -> GradFn:
    """The same, with each example's gradient clipped and noise added to the sum."""
    grad_fn = bk_jax.dp_value_and_grad(
        mean_loss,
        l2_clip_norm=clip_norm,
        noise_multiplier=noise_multiplier,
        normalize_by=batch_size,
    )

    def grads(params: Params, batch: Batch, key: jax.Array) -> Params:
        noise = key if noise_multiplier else None
        return grad_fn(params, batch.examples, key=noise, is_padding_example=batch.is_padding)[1]

    return grads


def make_step(grads: GradFn, optimizer: optax.GradientTransformation) -> Step:
    def step(state: State, batch: Batch, key: jax.Array) -> State:
        params, optimizer_state = state
        gradient = grads(params, batch, key)
        updates, optimizer_state = optimizer.update(gradient, optimizer_state, params)
        return optax.apply_updates(params, updates), optimizer_state

    return step


# --- the run --------------------------------------------------------------------------------------

Meter = Callable[[int], float]  # steps -> epsilon


@dataclasses.dataclass(frozen=True)
class Task:
    """What private and ordinary training have in common."""

    train: Examples
    held_out: Examples
    probability: float  # of each example to be in a batch
    size: int  # rows of a padded batch
    steps: int

    def batch(self, rng: np.random.Generator) -> Batch:
        """One batch to learn from."""
        return poisson_batch(self.train, self.probability, self.size, rng)


def make_task(epochs: float, batch_size: int) -> Task:
    train, held_out = load_data()
    probability = min(1.0, batch_size / len(train.labels))
    steps = max(1, round(epochs / probability))
    size = padded_size(len(train.labels), probability, steps)
    return Task(train, held_out, probability, size, steps)


def fit(
    task: Task, step: Step, state: State, seeds: Sequence[Any], epsilon: Meter
) -> Iterator[Point]:
    """Trains from `state` and yields about thirty points of the way."""
    rng, key = np.random.default_rng(seeds[0]), prng_key(seeds[1])
    for index in range(task.steps + 1):
        if index % max(1, task.steps // 30) == 0 or index == task.steps:
            accuracy, loss = evaluate(state[0], task.held_out)
            yield Point(index, float(accuracy), float(loss), epsilon(index))
        if index < task.steps:
            state = step(state, task.batch(rng), jax.random.fold_in(key, index))


def prng_key(seed: np.random.SeedSequence) -> jax.Array:
    """A JAX key from all the 64 bits that it can hold."""
    return jax.random.wrap_key_data(jnp.asarray(seed.generate_state(2)))


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


def compile_steps(args: argparse.Namespace, sigma: float, *inputs: Any) -> dict[str, Any]:
    """The steps to train with, and two more to compare their times with."""
    optimizer, size, clip = optax.adam(args.learning_rate), args.batch_size, args.clip_norm
    by_vmap = functools.partial(
        vmap_grad, mean_loss, clip_norm=clip, noise_multiplier=sigma, normalize_by=size
    )
    grads: dict[str, GradFn] = {
        "not private": plain_grad(size),
        "private": private_grad(clip, sigma, size),
        "private, before noise": private_grad(clip, 0.0, size),
        "private, by vmap(grad)": lambda params, batch, key: by_vmap(params, *batch, key),
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
    task = make_task(args.epochs, args.batch_size)
    with waiting("finding the noise that this privacy needs"):
        mechanism = calibrate(task.probability, task.steps, args.epsilon, args.delta)
    init, *seeds = np.random.SeedSequence(args.seed).spawn(3)
    params = init_params(prng_key(init), (64, args.width, args.width, 10))
    state = (params, optax.adam(args.learning_rate).init(params))
    inputs = (state, task.batch(np.random.default_rng(0)), jax.random.key(0))
    with waiting("compiling the steps"):
        steps = compile_steps(args, mechanism.noise_multiplier, *inputs)
    print_setting(args, task, mechanism, params, custom_calls(steps["private"]))

    spent = functools.partial(mechanism.epsilon, delta=args.delta)
    meters: dict[str, Meter] = {"private": spent, "not private": lambda _: np.inf}
    histories = {  # both see the same batches
        name: watch(name, task.steps, fit(task, steps[name], state, seeds, epsilon))
        for name, epsilon in meters.items()
    }
    print_results(histories, args.delta)
    with waiting("timing the steps in turn"):
        times = time_steps(steps, args.rounds, *inputs)
    print_times(times)
    save_plot(args.plot, histories, args.epsilon, args.delta)


if __name__ == "__main__":
    main()
