"""Tests of batching in place: always what `jax.vmap` gives, and the examples where they should be."""
