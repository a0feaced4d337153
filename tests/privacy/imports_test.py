"""The core needs JAX and NumPy only; what needs more says which extra brings it."""

from __future__ import annotations

from support.process import run_python


def test_importing_the_core_imports_nothing_of_the_extras():
    run_python("""
        import sys
        import bk_jax
        extras = {"dp_accounting", "optax", "bk_jax.privacy", "bk_jax.sampling"}
        extras |= {"bk_jax.training", "orbax", "rich", "matplotlib"}
        started = extras & set(sys.modules)
        assert not started, started
    """)


def test_reading_dumps_does_without_jax():
    run_python("""
        import sys
        import bk_jax.hlo.cli
        assert "jax" not in sys.modules
    """)


def test_public_names_are_there_in_every_order_of_imports():
    run_python("""
        import bk_jax._diagnose, bk_jax.overhead, bk_jax
        assert callable(bk_jax.diagnose) and callable(bk_jax.tax)
        from bk_jax import *
        found = {name: globals()[name] for name in bk_jax.__all__}
        assert found == {name: getattr(bk_jax, name) for name in bk_jax.__all__}
        assert set(found) <= set(dir(bk_jax)) and not hasattr(bk_jax, "nothing")
        assert found["diagnose"] is bk_jax._diagnose.diagnose
    """)


def test_without_the_extras_plans_exist_and_questions_to_them_name_the_extra():
    run_python("""
        import sys
        sys.modules["dp_accounting"] = sys.modules["optax"] = None
        import bk_jax
        from bk_jax import privacy, sampling

        plan = privacy.PrivacyPlan(
            num_examples=100, batch_size=10, steps=5, delta=1e-4, noise_multiplier=1.0
        )
        assert len(sampling.PoissonSampler.of(plan).indices(bk_jax.random.key())) <= 100

        def fails(function, package):
            try:
                function()
            except ImportError as error:
                wanted = f'the package {package}: pip install "bk_jax[train]"'
                assert wanted in str(error), error
            else:
                raise AssertionError(package)

        fails(plan.epsilon, "dp-accounting")
        fails(plan.event, "dp-accounting")
        fails(lambda: privacy.gaussian_privatizer(1.0, bk_jax.random.key()), "optax")
    """)
