"""Arrays on a mesh that nobody has set: an error of ours, that names the argument and the way out."""

from support.process import run_python

EIGHT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}

CODE = """
    import jax, jax.numpy as jnp, numpy as np
    from jax.sharding import AxisType, NamedSharding
    from jax.sharding import PartitionSpec as P
    import bk_jax

    def loss_fn(w, batch):
        return jnp.sum(jnp.tanh(batch["x"] @ w["kernel"]))

    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.{kind},))
    w = {{"kernel": np.ones((3, 4), np.float32)}}
    x = np.arange(24, dtype=np.float32).reshape(8, 3)
    batch = {{"x": jax.device_put(x, NamedSharding(mesh, P("data")))}}
    grad_fn = bk_jax.clipped_value_and_grad(loss_fn)
    whole = grad_fn(w, {{"x": x}})

    def refused(call, *args):
        try:
            call(*args)
        except ValueError as error:
            return str(error)
        raise SystemExit("not refused")
"""


def test_explicit_axes_need_a_mesh():
    code = """
    expected = "'1/x' is spread over a mesh with explicit axes ('data',), and no mesh is set"
    for call in (grad_fn, jax.jit(grad_fn)):
        said = refused(call, w, batch)
        assert expected in said and "with jax.set_mesh(mesh):" in said, said
    spread = jax.device_put(w, NamedSharding(mesh, P()))
    said = refused(jax.jit(grad_fn), spread, {"x": x})
    assert "'0/kernel' is spread" in said, said
    scaled = bk_jax.clipped_value_and_grad(lambda w, batch, scale: jnp.sum(scale) * loss_fn(w, batch))
    said = refused(lambda: scaled(w, {"x": x}, scale=batch["x"]))
    assert "'scale' is spread" in said, said
    """
    run_python(CODE.format(kind="Explicit") + code, **EIGHT)


def test_the_ways_out_are_some():
    set_mesh = """
    with jax.set_mesh(mesh):
        value, grads = jax.jit(grad_fn)(w, batch)
    np.testing.assert_allclose(grads["kernel"], whole[1]["kernel"], rtol=1e-5)
    assert grad_fn.explain(w, batch).routes() == {"kernel": "ghost"}
    """
    run_python(CODE.format(kind="Explicit") + set_mesh, **EIGHT)
    automatic = """
    value, grads = jax.jit(grad_fn)(w, batch)
    np.testing.assert_allclose(grads["kernel"], whole[1]["kernel"], rtol=1e-5)
    """
    run_python(CODE.format(kind="Auto") + automatic, **EIGHT)
