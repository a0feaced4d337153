"""A library that is not installed is named when it is asked for, and not before."""

from support.process import run_python


def test_each_library_is_named():
    run_python("""
        import sys
        libraries = {"nnx": "flax", "equinox": "equinox", "jax_privacy": "jax_privacy"}
        sys.modules.update(dict.fromkeys(libraries.values()))
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
        assert {"nnx", "equinox"} <= set(dir(bk_jax))
    """)
