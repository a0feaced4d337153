"""A library that is not installed is named when it is asked for, and not before."""

from support.process import run_python


def test_each_library_is_named():
    run_python("""
        import sys
        sys.modules.update(dict.fromkeys(("flax", "equinox", "jax_privacy", "keras")))
        import bk_jax
        from bk_jax import *
        from bk_jax.interop.jax_privacy import clipped_grad

        def says(library, function):
            try:
                function()
            except ImportError as error:
                assert f"the package {library}: pip install {library}" in str(error), error
            else:
                raise AssertionError(library)

        says("flax", lambda: bk_jax.nnx)
        says("equinox", lambda: bk_jax.equinox)
        says("jax_privacy", lambda: clipped_grad(lambda w, x: 0.0, l2_clip_norm=1.0))
        says("keras", lambda: bk_jax.keras.make_private(None, ledger="run.ledger"))
        assert {"nnx", "equinox", "keras"} <= set(dir(bk_jax))
    """)
