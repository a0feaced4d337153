"""Tables of steps: private over plain, by parts and causes, and what other code would give."""

from __future__ import annotations

from benchmarks.gpu.cycles import architectures, kernels, steps, whatif
from benchmarks.gpu.cycles.calls import Calls
from benchmarks.gpu.cycles.tables import LABELS, markdown


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
    """Microseconds of norms of convolutions: as they are, and from patches on tensor cores."""
    rows = []
    for one in whatif.CONVOLUTIONS:
        cells = []
        for name in ("A100", "H100"):
            calls = Calls(kernels.recorded(LABELS[-1], name), architectures.find(name))
            times = (calls.convolution(one.dense), whatif.patches_seconds(calls, one))
            cells += [f"{1e6 * time:.0f}" for time in times]
        mega = whatif.ITEM * one.batch * one.side**2 * 9 * one.channels_in / 1e6
        size = f"{one.batch} x {one.side} x {one.side}, {one.channels_in} to {one.channels_out}"
        rows.append([size, *cells, f"{mega:.0f}"])
    head = ["3 x 3, images and channels", "A100, gathered, us", "A100, patches, us",
            "H100, gathered, us", "H100, patches, us", "patches, MB"]  # fmt: skip
    return markdown(head, rows)
