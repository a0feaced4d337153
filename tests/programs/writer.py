"""Writes statements of random programs and knows the shape of every name in scope.

Which statements, with which weights, is decided by choices, see `programs.choices`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from programs.choices import Drawn, Seeded
from programs.language import NAMES

MAX_WEIGHT, MAX_HIDDEN = 64, 160  # elements


Value = tuple[str, tuple[int, ...]]


class Writer:
    """Writes statements and knows the shape of every name in scope."""

    def __init__(
        self, choices: Drawn | Seeded, shapes: dict[str, tuple[int, ...]], id_type: str
    ) -> None:
        self.one_of, self.integer, self.permuted = choices.one_of, choices.integer, choices.permuted
        self.lines: list[str] = []
        self.indent = "    "
        self.depth = 0
        self.count = 0
        self.id_type = id_type
        self.has_ids = True
        self.weights: list[Value] = list(shapes.items())
        self.unused = list(self.weights)
        self.hidden: list[Value] = [("x", (1, 5))]

    # --- drawing ---

    def a_weight(self, at_least: int = 0) -> Value:
        """A weight with that many dimensions or more.

        Likeliest are the newest views, and parameters that have no use yet: many uses of one
        parameter in different ways all end at the leaf tap.
        """
        unused = [weight for weight in self.unused if weight in self.weights]  # in scope
        name, shape = self.one_of(*self.weights, *2 * self.weights[-2:], *3 * unused)
        self.unused = [other for other in self.unused if other[0] != name]
        if len(shape) < at_least:
            shape = (*[1] * (at_least - len(shape)), *shape)
            name = f"{name}.reshape({shape})"
        return name, shape

    def a_hidden(self, shape: tuple[int, ...]) -> str:
        name, _ = self.one_of(*self.hidden[-4:])
        return f"fit({name}, {shape})"

    # --- writing ---

    def shape_of(self, expression: str) -> tuple[int, ...]:
        known = {name: np.zeros(shape) for name, shape in (*self.weights, *self.hidden)}
        ids = {"ids": np.zeros((1, 3), self.id_type)}

        def evaluate(values: dict[str, Any]) -> Any:
            return eval(expression, dict(NAMES), values)

        return tuple(jax.eval_shape(evaluate, {**known, **ids}).shape)

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def write(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def view(self, expression: str) -> None:
        """A new weight."""
        shape = self.shape_of(expression)
        if 0 < math.prod(shape) <= MAX_WEIGHT and len(shape) <= 5:
            name = self.fresh("w")
            self.write(f"{name} = {expression}")
            self.weights.append((name, shape))
            if self.one_of(True, True, False):  # what nothing uses tests nothing
                self.one_of(self.write_einsum, self.write_dot)((name, shape))

    def result(self, expression: str) -> None:
        """A new hidden value, kept small in number and in size."""
        shape = self.shape_of(expression)
        if math.prod(shape) == 0:
            return
        if math.prod(shape) > MAX_HIDDEN:
            expression, shape = f"fit({expression}, (3, 5))", (3, 5)
        name = self.fresh("h")
        function = self.one_of("jnp.tanh", "jnp.sin", "jax.nn.silu", "")
        self.write(f"{name} = {function}({expression})")
        self.hidden.append((name, shape))

    def use(self, write: Callable[[str], str], shape: tuple[int, ...]) -> None:
        """A use with a hidden value of that shape; often another one of the same form."""
        for _ in range(self.one_of(1, 1, 2)):
            self.result(write(self.a_hidden(shape)))

    def statement(self) -> None:
        forms = 2 * [self.write_view, self.write_einsum, self.write_dot, self.write_conv]
        forms += [self.write_view, self.write_joined, self.write_elementwise, self.write_unknown]
        if self.has_ids:
            forms += 2 * [self.write_lookup, self.write_tied]
        if self.depth < 2:
            forms += 3 * [self.write_nested]
        self.one_of(*forms)()

    # --- views ---

    def write_view(self) -> None:
        (w, shape) = self.a_weight()
        axis = self.integer(0, max(len(shape) - 1, 0))
        size = shape[axis] if shape else 1
        other, _ = self.a_weight()
        joined = [w] + [n for n, s in self.weights if len(s) == len(shape) and shape and (
            (*s[:axis], *s[axis + 1 :]) == (*shape[:axis], *shape[axis + 1 :]))]  # fmt: skip
        self.view(self.one_of(
            f"jnp.transpose({w}, {tuple(self.permuted(range(len(shape))))})",
            f"{w}.T",
            f"{w}.reshape({self.another_shape(shape)})",
            f'jnp.reshape({w}, {self.another_shape(shape)}, order="F")',
            f"lax.slice_in_dim({w}, {self.integer(0, size - 1)}, {size}, "
            f"{self.integer(1, 2)}, {axis})" if shape else f"{w}[None]",
            f"jnp.split({w}, [{self.integer(0, size)}], {axis})[{self.integer(0, 1)}]"
            if shape else f"{w}[None]",
            f"jnp.concatenate([{', '.join(self.one_of(*joined) for _ in range(2))}], {axis})"
            if shape else f"jnp.stack([{w}, {w}])",
            f"jnp.stack([{w}, {w}], {axis})",
            f"jnp.expand_dims({w}, {axis})",
            f"jnp.squeeze({w})",
            f"jnp.flip({w})",
            f"lax.rev({w}, ({axis},))" if shape else w,
            f"{w}[{self.integer(-size, size - 1)}]" if shape and axis == 0 else f"{w}[..., None]",
            f"jnp.broadcast_to({w}, {(self.integer(1, 2), *shape)})",
            f"jnp.ravel({other})",
            f'checkpoint_name({w}, "name")',
            f"{w}.astype(jnp.float64)",
            f"jax.jit(jnp.ravel)({w})",
            f"lax.stop_gradient({w})",
            f"jnp.diagonal({w})" if len(shape) > 1 else w,
        ))  # fmt: skip

    def write_joined(self) -> None:
        """A weight joined with itself, or with a part of itself."""
        w, shape = self.a_weight(1)
        axis = self.integer(0, len(shape) - 1)
        part = (
            f"lax.slice_in_dim({w}, {self.integer(0, shape[axis] - 1)}, {shape[axis]}, 1, {axis})"
        )
        other = self.one_of(w, part, f"jnp.flip({w})")
        self.view(f"jnp.concatenate([{', '.join(self.permuted([w, other]))}], {axis})")

    def another_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        rest, out = math.prod(shape), []
        for _ in range(self.integer(0, 3)):
            factor = self.one_of(*[f for f in (1, 2, 3, 4) if rest % f == 0])
            out.append(factor)
            rest //= factor
        return tuple(self.permuted([*out, rest]))

    # --- linear uses ---

    def write_einsum(self, weight: Value | None = None) -> None:
        w, shape = weight or self.a_weight()
        roles = [self.one_of("n", "d", "d", "p", "p") for _ in shape]
        names = "abcdef"[: len(shape)]
        tokens = "uv"[: self.integer(0, 2)]
        sizes = dict(zip(names, shape, strict=True)) | dict(zip("uv", (2, 3), strict=True))
        in_a = [c for c, role in zip(names, roles, strict=True) if role != "p"]
        in_y = [c for c, role in zip(names, roles, strict=True) if role != "d"]
        left = "".join(self.permuted([*in_a, *tokens]))
        out = "".join(self.permuted([*in_y, *tokens]))
        a_shape = tuple(sizes[c] for c in left)
        if self.one_of(True, False):
            self.use(lambda a: f'jnp.einsum("{left},{names}->{out}", {a}, {w})', a_shape)
        else:
            self.use(lambda a: f'jnp.einsum("{names},{left}->{out}", {w}, {a})', a_shape)

    def write_dot(self, weight: Value | None = None) -> None:
        """`dot_general` itself: dimensions in any order."""
        w, shape = weight or self.a_weight()
        dims = self.permuted(range(len(shape)))
        cut, end = sorted((self.integer(0, len(shape)), self.integer(0, len(shape))))
        contract, batch = dims[:cut], dims[cut:end]
        taken = self.permuted([*contract, *batch, *[-1] * self.integer(0, 2)])
        a_shape = tuple(2 if i < 0 else shape[i] for i in taken)
        in_a = [[taken.index(i) for i in part] for part in (contract, batch)]
        in_w = [contract, batch]
        if self.one_of(True, False):
            numbers = tuple((tuple(p), tuple(q)) for p, q in zip(in_a, in_w, strict=True))
            self.use(lambda a: f"lax.dot_general({a}, {w}, {numbers})", a_shape)
        else:
            numbers = tuple((tuple(q), tuple(p)) for p, q in zip(in_a, in_w, strict=True))
            self.use(lambda a: f"lax.dot_general({w}, {a}, {numbers})", a_shape)

    def write_conv(self) -> None:
        w, shape = self.a_weight(3)
        if len(shape) > 5:
            return
        letters = "XYZ"[: len(shape) - 2]
        spec = [
            self.permuted("NC" + letters),
            self.permuted("OI" + letters),
            self.permuted("NC" + letters),
        ]
        sizes = dict(zip(spec[1], shape, strict=True))
        groups = self.one_of(*[g for g in (1, 2, 3, 4) if sizes["O"] % g == 0])
        strides, dilation, stretch = ([self.one_of(1, 1, 2) for _ in letters] for _ in range(3))
        padding = [(self.one_of(0, 1, 2, -1), self.one_of(0, 1, 2)) for _ in letters]
        image = {"N": self.integer(1, 2), "C": sizes["I"] * groups}
        for i, letter in enumerate(letters):  # large enough for one output pixel
            window = (sizes[letter] - 1) * dilation[i] + 1 - sum(padding[i])
            image[letter] = max(-(-(window - 1) // stretch[i]) + 1, 1) + self.integer(0, 1)
        shape = tuple(image[letter] for letter in spec[0])
        numbers = tuple("".join(letters) for letters in spec)
        if groups == 1 and self.integer(0, 5) == 0:
            how = f"{strides}, {self.one_of('SAME', 'VALID')!r}, dimension_numbers={numbers}"
            self.use(lambda a: f"lax.conv_transpose({a}, {w}, {how})", shape)
            return
        pairs = image["N"] == 2 and groups == 1 and sizes["O"] % 2 == 0
        batch_groups = self.one_of(1, 1, 2) if pairs else 1
        how = f"{strides}, {padding}, {stretch}, {dilation}, {numbers}, {groups}, {batch_groups}"
        self.use(lambda a: f"lax.conv_general_dilated({a}, {w}, {how})", shape)

    def write_lookup(self) -> None:
        w, shape = self.a_weight(1)
        axis = self.integer(0, len(shape) - 1)
        colons = ":, " * axis
        mode = self.one_of("clip", "fill", "wrap")
        if self.id_type.startswith("u") and mode == "wrap":
            mode = "clip"
        fill = ", fill_value=0.0" if mode == "fill" else ""
        index = self.one_of("ids", "ids[0]", "ids.T", "ids[0, 1]", "ids[:, :1]")
        scalar = self.one_of("ids[0, 0]", "ids[0, 2]")
        choices = [
            f'jnp.take({w}, {index}, axis={axis}, mode="{mode}"{fill})',
            f'{w}.at[{colons}{index}].get(mode="{"fill" if fill else "clip"}"{fill})',
            f"{w}[{colons}{index}]",
            f"lax.dynamic_index_in_dim({w}, {scalar}, {axis}, keepdims={self.one_of(True, False)})",
            f"lax.dynamic_slice_in_dim({w}, {scalar}, {self.integer(1, shape[axis])}, {axis})",
            f"jax.nn.one_hot({index}, {shape[0]}) @ {w}.reshape({shape[0]}, -1)",
            f'jnp.take({w}, {index}, mode="clip")',
        ]
        if len(shape) > 1:
            choices += [f"{w}[ids[0], ids[0]]", f"{w}[ids[0], ..., ids[0]]"]
            choices.append(f"jax.vmap(lambda row, i: row[i], (0, None))({w}, ids[0])")
            choices.append(f"jax.vmap(lambda row, i: row[i])({w}, fit(ids, ({shape[0]},)))")
        self.result(self.one_of(*choices))

    def write_tied(self) -> None:
        """A table that is looked up and multiplied by."""
        w, shape = self.a_weight(2)
        axis, one, two = self.integer(0, 1), self.one_of("ids", "ids[0]"), self.one_of("", ".T")
        w = f"{w}.reshape({shape[0]}, -1)"
        self.result(f'jnp.take({w}, {one}, axis={axis}, mode="clip")')
        columns = self.shape_of(w + two)[0]
        self.use(lambda a: f"{a} @ {w}{two}", (2, columns))

    # --- other uses ---

    def write_elementwise(self) -> None:
        w, shape = self.a_weight()
        lead = self.one_of((), (), (2,), (2, 3))
        a = self.a_hidden((*lead, *shape))
        self.result(self.one_of(f"{a} + {w}", f"{a} * {w}", f"{w} - {a}", f"{a} * (1 + {w}) + {w}"))

    def write_unknown(self) -> None:
        w, shape = self.a_weight(1)
        v, _ = self.a_weight(1)
        a = self.a_hidden(shape)
        self.result(self.one_of(
            f"jnp.cumsum({w}, 0) * {a}", f"jnp.sort({w}) * {a}", f"jnp.where({a} > 0, {w}, 0)",
            f"{w} * fit({v}, {shape}) + {a}", f"jnp.exp(-{w}**2) * {a}", f"jnp.max({w}) * {a}",
            f"jax.nn.softmax({w}, -1) * {a}", f"jnp.pad({w}, 1)", f"jnp.sum({w} ** 2) + {a}",
            f"jnp.tensordot({w}, {v}, 0)", f"lax.reduce_precision({w}, 11, 52) + {a}",
            f"lax.optimization_barrier({w}) * {a}", f"{w}", f"jnp.tril({w} + {a})"
            if len(shape) > 1 else f"{w} @ {w}", f"jnp.mean({w}, 0) + {a}",
            f"lax.conv_general_dilated({w}.reshape(1, 1, -1), {a}.reshape(1, 1, -1), [1], 'SAME')",
        ))  # fmt: skip

    # --- nesting ---

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

    def known(self, name: str, shape: tuple[int, ...], expression: str) -> None:
        """A hidden value whose shape is known without evaluation."""
        self.write(f"{name} = {expression}")
        self.hidden.append((name, shape))

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
