"""Which products of float32 a library may make in TF32 on a GPU, where XLA's own are by default.

| `jax_default_matmul_precision` | gradients that are stored | clipped sums |
|---|---|---|
| not set, `"default"`, `"fastest"` | TF32 | float32 |
| `"tensorfloat32"` | TF32 | TF32 |
| anything else | float32 | float32 |

Norms are those of the stored gradients, however these were rounded. A clipped sum multiplies operands
whose norms are known: TF32 rounds them again, so it must be asked for by name (docs/numerics.md).
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

NAMED = ("tensorfloat32", "TF32_TF32_F32")
DEFAULT = (None, "default", "fastest")


def tf32(dtype: np.dtype, *, unless_named: bool) -> dict[str, Any]:
    """The attribute of a call whose products may be in TF32; `unless_named`: by default, too."""
    config: Any = jax.config
    precision = config.jax_default_matmul_precision
    allowed = precision in NAMED or (unless_named and precision in DEFAULT)
    return {"tf32": np.int64(1)} if allowed and dtype == np.float32 else {}
