"""Private gradients behind the functions that other libraries' users call.

| module | stands for |
|---|---|
| `bk_jax.nnx` | `nnx.value_and_grad` of Flax |
| `bk_jax.equinox` | `eqx.filter_value_and_grad` |
| `bk_jax.keras` | `fit` of a Keras model, by `make_private` |
| `bk_jax.interop.jax_privacy` | `jax_privacy.clipped_grad` |

Nothing below knows a library. Each module here turns a call with the library's objects into one with
trees of arrays.
"""
