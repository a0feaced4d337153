"""What XLA actually compiled: programs as data, their costs, our custom calls in them, and a lint.

>>> import jax, jax.numpy as jnp, bk_jax.hlo
>>> module, = bk_jax.hlo.load(jax.jit(jnp.dot).lower(jnp.ones((2, 3)), jnp.ones((3, 5))))
>>> bk_jax.hlo.summarize(module).flops
60
"""

from bk_jax.hlo.calls import Call, Neighbour, find_calls
from bk_jax.hlo.context import Finding, Limits
from bk_jax.hlo.diff import Diff, compare
from bk_jax.hlo.graph import Graph, neighbourhood, to_dot
from bk_jax.hlo.lint import check, fails
from bk_jax.hlo.loading import load
from bk_jax.hlo.model import Computation, HloError, HloWarning, Instruction, Memory, Module, Shape
from bk_jax.hlo.page import to_html
from bk_jax.hlo.picture import to_svg
from bk_jax.hlo.schedule import Timeline, timeline
from bk_jax.hlo.summary import Summary, summarize

__all__ = [
    "Call",
    "Computation",
    "Diff",
    "Finding",
    "Graph",
    "HloError",
    "HloWarning",
    "Instruction",
    "Limits",
    "Memory",
    "Module",
    "Neighbour",
    "Shape",
    "Summary",
    "Timeline",
    "check",
    "compare",
    "fails",
    "find_calls",
    "load",
    "neighbourhood",
    "summarize",
    "timeline",
    "to_dot",
    "to_html",
    "to_svg",
]
