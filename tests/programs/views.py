"""Views of weights in random programs: parts, joints and other shapes of them."""

from __future__ import annotations

import math

from programs.uses import Uses

MAX_WEIGHT = 64  # elements


class Views(Uses):
    """Writes statements that make a new weight of others; most of them are used at once."""

    def view(self, expression: str) -> None:
        """A new weight."""
        shape = self.shape_of(expression)
        if 0 < math.prod(shape) <= MAX_WEIGHT and len(shape) <= 5:
            name = self.fresh("w")
            self.write(f"{name} = {expression}")
            self.weights.append((name, shape))
            if self.one_of(True, True, False):  # what nothing uses tests nothing
                self.one_of(self.write_einsum, self.write_dot)((name, shape))

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
