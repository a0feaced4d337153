"""Uses of a weight in random programs: linear ones, lookups, and what has no rule."""

from __future__ import annotations

from programs.scope import Scope, Value


class Uses(Scope):
    """Writes statements that make a hidden value of a weight and another one."""

    # --- linear ---

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

    # --- lookups ---

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

    # --- others ---

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
