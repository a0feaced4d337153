"""Private steps of Llama's shapes on 8, 64 and 256 GPUs that are not there: compiled, not run.

    python tools/gpu_environment.py -m benchmarks.gpu.scale [--models llama_8b] [--devices 64]

One example of 4096 tokens on every part of the mesh that has examples, in bfloat16, on H100s. What is
found goes to docs/scale.json at once, and is not compiled again; `benchmarks.gpu.scale_document`
writes the tables of docs/scale.md from it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import bk_jax
from benchmarks.gpu.layouts import parameter_specs
from benchmarks.gpu.programs import Program, compile_program, described, make_mesh, missing
from benchmarks.gpu.wire import sent
from benchmarks.steps import step_models
from bk_jax import hlo, peft
from bk_jax.hlo import cost

FILE = Path(__file__).resolve().parents[2] / "docs" / "scale.json"
TOKENS, RANK = 4096, 16
ADAPTED = "layers/*"  # all matrices of the layers; norms have no use that LoRA knows
ENDLESS = 1 << 42  # bytes of memory: a step that does not fit is compiled all the same
# How many devices share the examples, and how many share each layer.
MESHES = {
    "llama": {8: (8, 1), 64: (64, 1), 256: (256, 1)},
    "llama_8b": {8: (8, 1), 64: (64, 1), 256: (64, 4)},
    "llama_70b": {8: (1, 8), 64: (8, 8), 256: (32, 8)},
}
TRAINED = ("all", "lora")
STEPS = ("plain", "auto")
Found = dict[str, Any]


class Step(NamedTuple):
    """What is trained, by which loss, beside what stays as it is."""

    loss: Callable[..., Any]
    params: Any
    batch: Any
    frozen: Any = None

    def function(self, name: str) -> Callable[..., Any]:
        """The plain step, or ours by the name of its method."""
        if name == "plain":
            grad_fn = jax.value_and_grad(self.loss)
        else:
            grad_fn = bk_jax.clipped_value_and_grad(self.loss, method=name)
        if self.frozen is None:
            return grad_fn
        return lambda params, batch, frozen: grad_fn(params, batch, frozen=frozen)


def make_step(model: str, trained: str, mesh: Mesh) -> Step:
    """Shapes in place of arrays; activations are pinned to the devices of their examples."""
    place = NamedSharding(mesh, P("data"))
    task = step_models.make(
        model, abstract=True, batch=mesh.shape["data"], length=TOKENS,
        pin=lambda x: jax.lax.with_sharding_constraint(x, place),
    )  # fmt: skip
    if trained == "all":
        return Step(task.loss, task.params, task.batch)
    tuned, adapters = _adapted(task)
    return Step(tuned.loss_fn, adapters, task.batch, frozen=task.params)


def _adapted(task: step_models.Task) -> tuple[Any, Any]:
    """The loss with adapters, whose numbers nobody needs."""
    made: list[Any] = []

    def draw(params: Any) -> Any:
        made.append(peft.lora(task.loss, params, task.batch, rank=RANK, match=ADAPTED, skip=True))
        return made[0].adapters

    adapters = jax.eval_shape(draw, task.params)
    return made[0], adapters


def arguments_of(step: Step, mesh: Mesh) -> tuple[list[Any], Any]:
    """The described arguments of a step, and the places of its gradients."""
    specs = parameter_specs(step.params, "both", mesh)
    examples = jax.tree.map(lambda x: P("data"), step.batch)
    arguments = [described(step.params, specs, mesh, jnp.bfloat16)]
    arguments.append(described(step.batch, examples, mesh))
    if step.frozen is not None:
        frozen = parameter_specs(step.frozen, "both", mesh)
        arguments.append(described(step.frozen, frozen, mesh, jnp.bfloat16))
    return arguments, jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)


def compile_one(step: Step, name: str, mesh: Mesh) -> Program:
    """The step of that name, its gradients cut as the parameters are."""
    arguments, parts = arguments_of(step, mesh)
    places = (NamedSharding(mesh, P()), parts)
    return compile_program(jax.jit(step.function(name), out_shardings=places), *arguments)


def weights_of(tree: Any) -> int:
    return sum(math.prod(x.shape) for x in jax.tree.leaves(tree))


def flops_of(module: hlo.Module) -> dict[str, int]:
    """Flops of one device: of our calls, and of all else; loops count as often as they run."""
    kinds = {kind: one.flops for kind, one in cost.by_kind(module).items()}
    ours = sum(flops for kind, flops in kinds.items() if kind.startswith("bk"))
    return {"model": sum(kinds.values()) - ours, "ours": ours}


def examine(model: str, trained: str, mesh: Mesh, name: str) -> Found:
    """What XLA says of one compiled step."""
    step = make_step(model, trained, mesh)
    start = time.perf_counter()
    program = compile_one(step, name, mesh)
    module = program.module()
    return {
        "temporary": program.temporary,
        "peak": program.peak,
        "sent": sent(program.compiled),
        "calls": len(module.bk_calls),
        "flops": flops_of(module),
        "compile": round(time.perf_counter() - start, 1),
        "trained": weights_of(step.params),
    }


def read() -> Found:
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def _write(found: Found) -> None:
    FILE.write_text(json.dumps(found, indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=MESHES, default=list(MESHES))
    parser.add_argument(
        "--devices", nargs="+", type=int, choices=(8, 64, 256), default=[8, 64, 256]
    )
    parser.add_argument("--trained", nargs="+", choices=TRAINED, default=list(TRAINED))
    parser.add_argument(
        "--steps", nargs="+", default=list(STEPS), help="plain, or methods of bk_jax"
    )
    return parser.parse_args()


def main() -> None:
    if reason := missing():
        raise SystemExit(f"scale: {reason}")
    chosen = _arguments()
    found = read()
    for model, devices, trained in itertools.product(chosen.models, chosen.devices, chosen.trained):
        mesh = make_mesh("h100", *MESHES[model][devices], memory=ENDLESS)
        row = found.setdefault(f"{model} {trained} {devices}", {})
        for name in chosen.steps:
            if name not in row:
                print(f"{model}, {trained}, {devices} GPUs, {name} ...", flush=True)
                row[name] = examine(model, trained, mesh, name)
                print(f"  {row[name]['peak'] / 1e9:.1f} GB, {row[name]['compile']} s", flush=True)
                _write(found)


if __name__ == "__main__":
    main()
