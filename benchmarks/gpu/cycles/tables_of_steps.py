"""Tables of steps: private over plain, by parts and causes, and what other code would give."""

from __future__ import annotations

from benchmarks.gpu.cycles import architectures, images, kernels, steps, whatif
from benchmarks.gpu.cycles.calls import Calls
from benchmarks.gpu.cycles.tables import LABELS, markdown
from benchmarks.paper.complexity import layers

NAMES = ("A100", "H100")


def ratios(names: tuple[str, ...] = ("A100", "H100")) -> str:
    """Steps of whole models, private over plain."""
    found = {(label, name): steps.all_steps(label, name) for label in LABELS for name in names}
    head = ["model, bf16", *(f"{name}, {label}" for name in names for label in LABELS), "goal",
            "printed", "by"]  # fmt: skip
    rows = []
    for number, case in enumerate(steps.CASES):
        cells = [f"{found[label, name][number][1].ratio:.2f}" for name in names for label in LABELS]
        goal = f"{case.goal:.2f}" if case.goal else "-"
        printed = f"{case.printed:.2f}" if case.printed else "-"
        rows.append([f"{case.label}, B={case.batch}", *cells, goal, printed, case.source or "-"])
    return markdown(head, rows)


def parts(name: str, label: str = LABELS[-1]) -> str:
    """Milliseconds of the parts of a step."""
    head = ["model", "plain step", "of it replaced", "norms", "sums", "noise", "routes"]
    rows = [
        [case.label, *(f"{value:.1f}" for value in (step.plain, step.replaced, step.norms, step.sums,
         step.noise)), ", ".join(sorted(set(step.routes.values())))]
        for case, step in steps.all_steps(label, name)
    ]  # fmt: skip
    return markdown(head, rows)


def causes() -> str:
    """What makes the step longer, in percent of the plain one, beside the goal."""
    rows = []
    for name in ("A100", "H100"):
        for case, step in steps.all_steps(LABELS[-1], name):
            if case.goal is None:
                continue
            over = step.ratio - case.goal
            verdict = f"missed by {over:.2f}" if over > 0 else f"met by {-over:.2f}"
            shares = (step.norms - step.cross, step.cross, step.sums - step.replaced, step.noise)
            cells = [f"{100 * part / step.plain:+.1f}" for part in shares]
            careful = step.ratio + max(0.0, step.replaced - step.sums) / step.plain
            numbers = (f"{ratio:.2f}" for ratio in (careful, step.ratio, case.goal))
            rows.append([name, case.label, *cells, *numbers, verdict])
    head = ["GPU", "step", "norms", "tied cross term", "sums over XLA's gradients", "noise",
            "ratio, sums no faster than XLA's", "ratio", "goal", ""]  # fmt: skip
    return markdown(head, rows)


def clusters(name: str = "H100") -> str:
    """Ratios if large tiles came in clusters that share copies."""
    found = [whatif.clustered_steps(blocks, name) for blocks in whatif.CLUSTERS]
    rows = []
    for number, (case, step) in enumerate(steps.all_steps(LABELS[-1], name)):
        goal = f"{case.goal:.2f}" if case.goal else "-"
        rows.append(
            [case.label, f"{step.ratio:.2f}", *(f"{s[number].ratio:.2f}" for s in found), goal]
        )
    head = [
        f"step on an {name}",
        "as it is",
        *(f"clusters of {n}" for n in whatif.CLUSTERS),
        "goal",
    ]
    return markdown(head, rows)


def convolutions() -> str:
    """Microseconds of norm and sum of ResNet18's convolutions, gathered and from patches."""
    rows = []
    for one in images.convolutions("resnet18"):
        patches = one.cost.patches
        if patches is None:
            continue
        cells = []
        for name in NAMES:
            calls = _calls(name)
            for is_patched in (False, True):
                _, norm, total = images.planned(calls, one, patches=is_patched)
                cells.append(f"{1e6 * norm:.0f} + {1e6 * total:.0f}")
        size = f"{one.side} x {one.side}, {one.cost.d} to {one.cost.p}"
        route = images.planned(_calls(NAMES[0]), one, patches=True)[0]
        mega = one.patch_bytes / patches.parts / 1e6
        rows.append([size, route, *cells, str(patches.parts), f"{mega:.0f}"])
    head = ["pixels, d to p", "route", *_both("us"), "parts", "MB of patches at a time"]
    return markdown(head, rows)


def networks() -> str:
    """Steps of networks of convolutions, private over plain."""
    rows = []
    for network in images.NETWORKS:
        cells = [layers.read(network).title]
        for name in NAMES:
            for is_patched in (False, True):
                step = images.step(network, _calls(name), patches=is_patched)
                cells.append(f"{step.ratio:.1f}" if not is_patched else f"{step.ratio:.2f}")
        rows.append(cells)
    return markdown([f"{images.BATCH} images, bf16", *_both("ratio")], rows)


def _both(unit: str) -> list[str]:
    forms = ("gathered", "patches")
    return [f"{name}, {form}, {unit}" for name in NAMES for form in forms]


def _calls(name: str) -> Calls:
    return Calls(kernels.recorded(LABELS[-1], name), architectures.find(name))
