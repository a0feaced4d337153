"""Convolutions of plans for GPUs from patches: the results of the definition, in bounded memory.

Losses are linear in the kernel, so that output gradients are data: small integers are exact, and a norm
that is too small by one rounding is found.
"""

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support import fake_cuda
from support.arrays import normals, small_integers
from support.oracle import check_against_oracle, weighted

import bk_jax
from bk_jax import ops
from bk_jax.planning import patches
from bk_jax.planning.cost import LayerCost
from bk_jax.planning.devices import find_device

B = 5
NHWC = ("NHWC", "HWIO", "NHWC")
# Sizes of image and kernel, and how they meet.
CONVOLUTIONS = {
    "same": ((5, 7, 3), (3, 3, 3, 5), {"padding": "SAME"}),
    "strides": ((9, 8, 8), (3, 2, 8, 4), {"window_strides": (2, 3), "padding": ((1, 0), (0, 2))}),
    "dilated": ((9, 9, 4), (3, 2, 4, 6), {"rhs_dilation": (3, 4)}),
    "groups": ((4, 5, 6), (3, 2, 2, 9), {"feature_group_count": 3, "padding": "SAME"}),
    "transposed": ((3, 4, 2), (3, 3, 2, 3), {"lhs_dilation": (2, 3), "padding": ((2, 1), (0, 2))}),
    "cropped": ((6, 6, 1), (3, 2, 1, 1), {"padding": ((-1, 0), (-2, 1))}),
    "stem": ((12, 11, 3), (7, 7, 3, 8), {"window_strides": (2, 2), "padding": "SAME"}),
    "tiles": ((9, 10, 3), (4, 4, 3, 7), {"window_strides": (4, 4)}),
    "large tiles": ((19, 18, 2), (9, 9, 2, 3), {"window_strides": (9, 9), "padding": ((0, 8), (0, 0))}),
    "grouped tiles": ((4, 6, 4), (2, 3, 2, 4), {"window_strides": (2, 3), "feature_group_count": 2}),
    "pointwise": ((4, 5, 8), (1, 1, 8, 6), {}),
    "pointwise groups": ((4, 5, 6), (1, 1, 3, 4), {"feature_group_count": 2}),
    "pointwise strides": ((5, 5, 3), (1, 1, 3, 4), {"window_strides": (2, 2)}),
    "pointwise padded": ((3, 3, 2), (1, 1, 2, 4), {"padding": ((1, 0), (0, 2))}),
    "one dimension": ((9, 3), (4, 3, 5), {"dimension_numbers": ("NWC", "WIO", "NWC")}),
    "three dimensions": (
        (4, 5, 3, 2), (2, 3, 2, 2, 3), {"dimension_numbers": ("NDHWC", "DHWIO", "NDHWC")}),
    "channels first": (
        (3, 5, 6), (4, 3, 3, 3), {"dimension_numbers": ("NCHW", "OIHW", "NCHW"), "padding": "SAME"}),
}  # fmt: skip
ROUTES = ("ghost", "fused", "store")


def convolve(x, w, options):
    ones = (1,) * (x.ndim - 2)
    how = {"window_strides": ones, "padding": "VALID", "dimension_numbers": NHWC} | options
    return lax.conv_general_dilated(x, w, **how)


def linear(options):
    """`batch` holds images and output gradients."""

    def loss(params, batch):
        y = convolve(batch["x"], params["w"], options)
        return jnp.sum(y.astype(jnp.float32) * batch["g"].astype(jnp.float32))

    return loss


def task(name, make=small_integers, dtype=jnp.bfloat16, size=B):
    """The loss, parameters and a batch."""
    image, kernel, options = CONVOLUTIONS[name]
    x = jax.ShapeDtypeStruct((1, *image), dtype)
    w = jax.ShapeDtypeStruct(kernel, dtype)
    out = jax.eval_shape(lambda x, w: convolve(x, w, options), x, w).shape[1:]
    batch = {"x": make(0, (size, *image), dtype), "g": make(1, (size, *out), dtype)}
    return linear(options), {"w": make(2, kernel, dtype)}, batch


def true_gradients(loss, params, batch):
    """Of every example, in float64."""
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda x: np.asarray(x, np.float64), (params, batch))
        one = lambda w, example: loss({"w": w}, jax.tree.map(lambda x: x[None], example))  # noqa: E731
        gradient = jax.vmap(jax.grad(one), in_axes=(None, 0))
        return np.asarray(gradient(wide[0]["w"], wide[1]))


@pytest.fixture
def preferred(monkeypatch):
    """Patches wherever they can be made, in as many parts as asked for; the windows of those made."""
    monkeypatch.setattr(patches, "route_seconds", lambda form, *_: 0.5 if form.patches else 1.0)

    def in_parts(count):
        original = patches.Patches
        made = lambda width, parts, copied: original(width, count if copied else 1, copied)  # noqa: E731
        monkeypatch.setattr(patches, "Patches", made)
        return windows

    windows, dense_patches = [], ops.dense_patches
    spy = lambda x, out, window: windows.append(window) or dense_patches(x, out, window)  # noqa: E731
    monkeypatch.setattr(ops, "dense_patches", spy)
    return in_parts


def private(loss, route, device="A100", **options):
    options = {"l2_clip_norm": 1e9, "return_stats": True, "dtype": jnp.float32} | options
    return bk_jax.clipped_value_and_grad(loss, routes={"w": route}, device=device, **options)


# --- the same results ---


def all_routes(loss, params, batch, is_padding_example=None, **options):
    """Clipped sums and norms by each route, compiled together."""
    how = {"is_padding_example": is_padding_example}
    grad_fns = [private(loss, route, **options) for route in ROUTES]
    found = jax.jit(lambda *args: [fn(*args, **how)[1:] for fn in grad_fns])(params, batch)
    return [(np.asarray(grads["w"]), stats) for grads, stats in found]


def check_integers(name):
    loss, params, batch = task(name)
    exact = true_gradients(loss, params, batch)
    squares = np.square(exact).reshape(B, -1).sum(1)
    for total, stats in all_routes(loss, params, batch):
        np.testing.assert_array_equal(total, exact.sum(0))
        np.testing.assert_array_equal(stats.norms, np.sqrt(np.float32(squares)))


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_small_integers_are_exact(preferred, name):
    made = preferred(2)
    check_integers(name)
    assert len(made) >= 5  # norms, gradients, and sums of two routes


@pytest.mark.parametrize("parts", [1, 3, 5])
def test_parts_do_not_change_what_is_exact(preferred, parts):
    preferred(parts)
    check_integers("strides")


@pytest.mark.parametrize(
    ("name", "dtype"), [("same", jnp.bfloat16), ("groups", jnp.float16), ("stem", jnp.bfloat16)]
)
def test_norms_are_bounded_and_those_of_the_gathering_form(preferred, name, dtype):
    """`C n <= R` for the exact norms of the operands, without any slack."""
    preferred(2)
    loss, params, batch = task(name, normals, dtype)
    exact = true_gradients(loss, params, batch)
    norms = np.sqrt(np.square(exact).reshape(B, -1).sum(1))
    found = all_routes(loss, params, batch, l2_clip_norm=0.25)
    gathered = all_routes(loss, params, batch, l2_clip_norm=0.25, device="cpu")
    for (total, stats), (direct, of_direct) in zip(found, gathered, strict=True):
        factors = np.asarray(stats.clip_factors, np.float64)
        assert np.all(factors * norms <= 0.25)
        assert np.all(factors * norms >= 0.25 * 0.98)
        np.testing.assert_allclose(stats.norms, norms, rtol=1e-5)
        np.testing.assert_allclose(stats.norms, of_direct.norms, rtol=2e-5)
        scale = np.abs(total).max()
        np.testing.assert_allclose(total, weighted(factors, exact), rtol=0, atol=1e-5 * scale)
        np.testing.assert_allclose(total, direct, rtol=0, atol=1e-2 * scale)


@pytest.mark.parametrize("parts", [1, 3])
def test_padding_with_nan_and_examples_that_are_not_finite(preferred, parts):
    """They count for nothing, and touch no other example of their part."""
    preferred(parts)
    loss, params, batch = task("same")
    squares = np.square(true_gradients(loss, params, batch)).reshape(B, -1).sum(1)
    good, is_padding = np.asarray([1, 0, 0, 1, 0], bool), np.arange(B) == 1
    exact = true_gradients(loss, params, batch)[good].sum(0)
    batch["x"][1], batch["g"][2], batch["x"][4, 2, 2, 1] = np.nan, np.nan, np.inf
    for total, stats in all_routes(loss, params, batch, is_padding_example=is_padding):
        np.testing.assert_array_equal(total, exact)
        np.testing.assert_array_equal(stats.clip_factors, good)
        np.testing.assert_array_equal(stats.norms[good], np.sqrt(np.float32(squares[good])))
        assert stats.nonfinite_count == 2


@pytest.mark.parametrize("size", [0, 1, 2])
def test_fewer_examples_than_parts_are_gathered(preferred, size):
    made = preferred(2)
    loss, params, batch = task("same", size=size)
    for total, stats in all_routes(loss, params, batch):
        np.testing.assert_array_equal(total, true_gradients(loss, params, batch).sum(0))
        assert stats.norms.shape == (size,)
    assert bool(made) == (size == 2)
    why = private(loss, "fused").explain(params, batch).rows[0].why
    assert why.endswith(f", but gathered in a batch of {size}") == (size < 2)


def test_microbatches_and_a_second_backward_pass(preferred):
    preferred(2)
    loss, params, batch = task("strides", normals)
    for options in ({"microbatch_size": 2}, {"method": "ghost_clip", "routes": None}):
        check_against_oracle(
            loss, params, batch, l2_clip_norm=0.5, device="A100", dtype=jnp.float32, **options
        )


def twice(params, batch):
    """One kernel on images of two sizes."""
    found = [
        convolve(x, params["w"], {"padding": "SAME"}) for x in (batch["x"], batch["x"][:, ::2])
    ]
    return sum(jnp.sum(jnp.sin(y.astype(jnp.float32))) for y in found)


def scanned(params, batch):
    """A kernel for each step, and one that all steps share."""

    def step(x, w):
        y = convolve(jnp.tanh(x), w, {"padding": "SAME"})
        return jnp.tanh(convolve(y, params["shared"], {"padding": "SAME"})), None

    out, _ = lax.scan(step, batch["x"], params["w"])
    return jnp.sum(jnp.square(out.astype(jnp.float32)))


@pytest.mark.parametrize(("route", "parts"), [("ghost", 2), ("fused", 1), ("store", 2)])
def test_several_uses_of_a_kernel(preferred, route, parts):
    preferred(parts)
    batch = {"x": normals(0, (B, 5, 4, 3), jnp.bfloat16)}
    kernel, stack = (normals(2, (*n, 3, 3, 3, 3), jnp.bfloat16) / 3 for n in ((), (2,)))
    for loss, params in ((twice, {"w": kernel}), (scanned, {"w": stack, "shared": kernel})):
        check_against_oracle(
            loss, params, batch, l2_clip_norm=0.5, device="A100", routes={"*": route},
            dtype=jnp.float32,
        )  # fmt: skip


# --- which convolutions, and why ---


def explained(kernel, channels, dtype=jnp.bfloat16, device="A100", strides=(1, 1), groups=1):
    """Of a convolution beside a dense layer, which keeps as much as a whole network does."""
    wide, narrow, side = channels
    options = {"padding": "SAME", "window_strides": strides, "feature_group_count": groups}

    def loss(params, batch):
        y = convolve(batch["x"], params["w"], options)
        return jnp.sum(jnp.tanh(y)) + jnp.sum(jnp.tanh(batch["a"] @ params["dense"]))

    describe = functools.partial(jax.ShapeDtypeStruct, dtype=dtype)
    params = {
        "w": describe((kernel, kernel, wide // groups, narrow)),
        "dense": describe((768, 768)),
    }
    batch = {"x": describe((32, side, side, wide)), "a": describe((32, 4000, 768))}
    rows = bk_jax.clipped_value_and_grad(loss, device=device).explain(params, batch).rows
    return next(row for row in rows if row.path == "w")


CHOSEN = {
    "patches": (3, (512, 512, 7), {}),
    "pixels as rows": (1, (256, 512, 14), {}),
    "gathered: depthwise": (7, (128, 128, 14), {"groups": 128}),
    "gathered: kernel too large": (9, (16, 16, 14), {}),
    "gathered: float32": (3, (512, 512, 7), {"dtype": jnp.float32}),
    "gathered: float64": (3, (64, 64, 56), {"dtype": jnp.float64}),
    "gathered, from patches": (3, (1, 1, 8), {}),
    "patches in": (3, (64, 64, 56), {}),
}


@pytest.mark.parametrize("device", ["A100", "H100", "B200"])
@pytest.mark.parametrize("why", CHOSEN)
def test_explain_says_which_form_and_why(why, device):
    kernel, channels, options = CHOSEN[why]
    with jax.enable_x64(options.get("dtype") == jnp.float64):
        row = explained(kernel, channels, device=device, **options)
    assert f"; {why}" in row.why


@pytest.mark.parametrize("why", CHOSEN)
def test_plans_for_cpus_have_no_patches(why):
    kernel, channels, options = CHOSEN[why]
    with jax.enable_x64(options.get("dtype") == jnp.float64):
        row = explained(kernel, channels, device="cpu", **options)
    assert "patches" not in row.why
    assert "gathered" not in row.why


def test_pixels_one_by_one_of_float32_have_gram_matrices_without_patches():
    row = explained(1, (512, 2048, 7), jnp.float32)
    assert row.route == "ghost"
    assert "norm from pixels as rows, sum gathered: float32" in row.why


def test_patches_are_faster_by_the_data_sheet():
    """Late layers of a ResNet; the ratio is that of the whole of norm and sum."""
    for device in ("A100", "H100"):
        why = explained(3, (512, 512, 7), device=device).why
        ratio = float(why.rpartition("gathered ")[2].removesuffix("x as long"))
        assert ratio > 3


# --- memory ---


def two_layers(params, batch):
    """Large images, then small ones: the patches of the first are the largest array there could be."""
    x = jnp.tanh(convolve(batch, params["first"], {"padding": "SAME"}))
    x = jnp.tanh(convolve(x, params["second"], {"padding": "SAME", "window_strides": (4, 4)}))
    return jnp.mean(jnp.square(x))


SHAPES = {"first": (3, 3, 16, 32), "second": (3, 3, 32, 64)}


def patches_in(text, wide):
    """Bytes of the operands of dense calls that have so many elements in a row."""
    found = [
        call
        for name in (
            "direct_norm",
            "ghost_norm",
            "per_sample_grad",
            "clipped_gemm",
            "clipped_gemm_add",
        )
        for call in fake_cuda.calls(text, f"bk_{name}")
    ]
    shapes = [shape for call in found for shape in fake_cuda.shapes(call)[0]]
    sizes = [[int(n) for n in shape.split("x")[:-1]] for shape in shapes if shape.endswith("bf16")]
    return [2 * int(np.prod(one)) for one in sizes if one[-1] == wide]


@pytest.mark.parametrize(("size", "route"), [(28, "ghost"), (64, "fused"), (64, "store")])
def test_patches_take_a_sixteenth_of_what_is_kept(monkeypatch, preferred, size, route):
    fake_cuda.register(monkeypatch)
    del preferred  # patches are preferred; parts are the plan's
    dtype = jnp.bfloat16
    params = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape in SHAPES.items()}
    batch = jax.ShapeDtypeStruct((size, 24, 24, 16), dtype)
    grad_fn = bk_jax.clipped_value_and_grad(two_layers, routes={"*": route}, device="A100")
    kept = 2 * size * (24 * 24 * (16 + 32 + 32) + 6 * 6 * 64)
    text = fake_cuda.lowered(grad_fn, params, batch)
    for name, wide in (("first", 9 * 16), ("second", 9 * 32)):
        found = patches_in(text, wide)
        assert len(found) == (1 if route == "store" else 2), name  # for the norm, and for the sum
        assert max(found) <= kept / patches.PART
    whole = 2 * size * 24 * 24 * 9 * 16
    assert whole > 2 * kept / patches.PART


def test_rows_that_are_looked_up_do_not_count_as_kept():
    """A table of many words keeps numbers, not rows as long as the table."""
    cost = LayerCost(1, 10, 50000, 8, kept_itemsize=2)
    use = types.SimpleNamespace(kind="lookup")
    site = types.SimpleNamespace(use=use, reads=("ids",), axes=())
    assert patches.kept_bytes([[site]], [cost]) == 2 * 10 * 8


def test_activations_that_several_layers_read_count_once():
    cost = LayerCost(1, 10, 30, 8, kept_itemsize=2)
    use = types.SimpleNamespace(kind="dense")
    layers = [[types.SimpleNamespace(use=use, reads=(name,), axes=())] for name in "aab"]
    assert patches.kept_bytes(layers, [cost] * 3) == 2 * 10 * (3 * 8 + 2 * 30)


def test_patches_of_the_sum_are_made_anew(monkeypatch, preferred):
    """Equal expressions would be one array, kept from the norms until the sums."""
    fake_cuda.register(monkeypatch)
    preferred(1)
    loss, params, batch = task("same")
    text = fake_cuda.lowered(private(loss, "fused", l2_clip_norm=1.0), params, batch)
    norm, total = (
        [line for line in text.splitlines() if f"@{name}(" in line]
        for name in ("bk_direct_norm", "bk_clipped_gemm")
    )
    assert len(norm) == len(total) == 1
    first = [line[0].partition(f"@{name}(")[2].partition(",")[0]
             for line, name in ((norm, "bk_direct_norm"), (total, "bk_clipped_gemm"))]  # fmt: skip
    assert first[0] != first[1]
    assert text.index("@bk_clip_factor") < text.index("stablehlo.select")


def test_data_sheets_have_multiprocessors():
    assert [find_device(kind).multiprocessors for kind in ("A100", "H100", "B200")] == [
        108,
        132,
        148,
    ]
