"""Writes statements of random programs, and blocks of them inside control flow.

Which statements, with which weights, is decided by choices, see `programs.choices`.
"""

from __future__ import annotations

from collections.abc import Callable

from programs.scope import Value
from programs.views import Views


class Writer(Views):
    """Writes statements and knows the shape of every name in scope."""

    def statement(self) -> None:
        forms = 2 * [self.write_view, self.write_einsum, self.write_dot, self.write_conv]
        forms += [self.write_view, self.write_joined, self.write_elementwise, self.write_unknown]
        if self.has_ids:
            forms += 2 * [self.write_lookup, self.write_tied]
        if self.depth < 2:
            forms += 3 * [self.write_nested]
        self.one_of(*forms)()

    def body(
        self, weights: list[Value], hidden: list[Value], ids: bool, closes_over: bool
    ) -> Value:
        """An indented block of statements; returns its last hidden value."""
        saved = self.weights, self.hidden, self.has_ids, self.indent
        self.weights = [*(self.weights if closes_over else ()), *weights]
        self.hidden = [*(self.hidden[-2:] if closes_over else ()), *hidden]
        self.has_ids, self.indent, self.depth = ids, self.indent + "    ", self.depth + 1
        for _ in range(self.integer(1, 3)):
            self.statement()
        last = self.hidden[-1]
        self.weights, self.hidden, self.has_ids, self.indent = saved
        self.depth -= 1
        return last

    def write_nested(self) -> None:
        self.one_of(
            self.write_call, self.write_call, self.write_cond, self.write_custom, self.write_vmap,
            self.write_scan_const, self.write_scan_xs, self.write_scan_carry, self.write_map,
        )()  # fmt: skip

    def function(self, head: str, inner: Callable[[], str]) -> str:
        """Writes `def name(head): ...` whose body ends with what `inner` returns."""
        name = self.fresh("f")
        self.write(f"def {name}({head}):")
        returned = inner()
        self.write(f"    return {returned}")
        return name

    # --- functions ---

    def write_call(self) -> None:
        shape: tuple[int, ...] = ()

        def inner() -> str:
            nonlocal shape
            name, shape = self.body([], [], self.has_ids, closes_over=True)
            return f"jnp.tanh({name})"

        name = self.function("", inner)
        wrap = self.one_of("jax.jit", "jax.checkpoint", "jax.jit")
        self.known(self.fresh("h"), shape, f"{wrap}({name})()")

    def write_cond(self) -> None:
        def inner() -> str:
            name, _ = self.body([], [], self.has_ids, closes_over=True)
            return f"fit({name}, (2, 3))"

        one, two, (decides, _) = (
            self.function("", inner),
            self.function("", inner),
            self.one_of(*self.hidden),
        )
        self.known(self.fresh("h"), (2, 3), f"lax.cond(jnp.sum({decides}) > 0, {one}, {two})")

    def write_custom(self) -> None:
        """Custom derivatives see their arguments only."""
        w, shape = self.a_weight()
        a, arg, h = self.a_hidden((2, 3)), self.fresh("w"), self.fresh("h")

        def inner() -> str:
            name, _ = self.body([(arg, shape)], [(h, (2, 3))], False, closes_over=False)
            return f"fit({name}, (2, 3))"

        name = self.function(f"{arg}, {h}", inner)
        wrap = self.one_of("doubled_vjp", "doubled_jvp")
        self.known(self.fresh("h"), (2, 3), f"{wrap}({name})({w}, {a})")

    def write_vmap(self) -> None:
        """Over rows of a hidden value, or of a weight."""
        w, shape = self.a_weight(1)
        over_weight = self.one_of(True, False)
        length = shape[0] if over_weight else 2
        arg, h = self.fresh("w"), self.fresh("h")
        rows = [(arg, shape[1:])] if over_weight else []

        def inner() -> str:
            name, _ = self.body(rows, [(h, (3,))], False, closes_over=True)
            return f"fit({name}, (2,))"

        name = self.function(f"{h}, {arg}", inner)
        a = self.a_hidden((length, 3))
        axes = "(0, 0)" if over_weight else "(0, None)"
        self.known(self.fresh("h"), (length, 2), f"jax.vmap({name}, {axes})({a}, {w})")

    def write_map(self) -> None:
        (w, shape), arg = self.a_weight(1), self.fresh("w")

        def inner() -> str:
            name, _ = self.body([(arg, shape[1:])], [], False, closes_over=True)
            return f"fit({name}, (2,))"

        name = self.function(arg, inner)
        self.known(self.fresh("h"), (shape[0], 2), f"lax.map({name}, {w})")

    # --- scans ---

    def write_scan_const(self) -> None:
        h, y = self.fresh("h"), self.fresh("h")

        def inner() -> str:
            name, _ = self.body([], [(h, (2, 3)), (y, (2,))], False, closes_over=True)
            return f"jnp.tanh(fit({name}, (2, 3)) + {h}), {name}"

        name = self.function(f"{h}, {y}", inner)
        start, ys = self.a_hidden((2, 3)), self.a_hidden((3, 2))
        carry = self.fresh("h")
        reverse = self.one_of("", ", reverse=True")
        self.known(carry, (2, 3), f"lax.scan({name}, {start}, {ys}{reverse})[0]")

    def write_scan_xs(self) -> None:
        (w, shape), arg, h = self.a_weight(1), self.fresh("w"), self.fresh("h")

        def inner() -> str:
            name, _ = self.body([(arg, shape[1:])], [(h, (2, 3))], False, closes_over=True)
            return f"jnp.tanh(fit({name}, (2, 3)) + {h}), fit({name}, (2,))"

        name = self.function(f"{h}, {arg}", inner)
        reverse = self.one_of("", ", reverse=True", ", unroll=2")
        both, start = self.fresh("s"), self.a_hidden((2, 3))
        self.write(f"{both} = lax.scan({name}, {start}, {w}{reverse})")
        self.known(self.fresh("h"), (2, 3), f"{both}[0]")
        if self.one_of(True, False):
            self.known(self.fresh("h"), (shape[0], 2), f"{both}[1]")

    def write_scan_carry(self) -> None:
        (w, shape), arg, h = self.a_weight(), self.fresh("w"), self.fresh("h")
        changed = self.one_of(arg, f"0.5 * {arg}", f"jnp.flip({arg})")

        def inner() -> str:
            self.write(f"    {h}, {arg} = carry")
            name, _ = self.body([(arg, shape)], [(h, (2, 3))], False, closes_over=True)
            return f"(jnp.tanh(fit({name}, (2, 3)) + {h}), {changed}), None"

        name = self.function("carry, _", inner)
        start = self.a_hidden((2, 3))
        self.known(
            self.fresh("h"), (2, 3), f"lax.scan({name}, ({start}, {w}), None, length=2)[0][0]"
        )
