"""Parameter-efficient fine-tuning: train a small part of a model privately, without changing it.

| function | trains |
|---|---|
| `lora` | low-rank updates of weights that are multiplied by, found in the traced program |
| `partition`, `combine`, `with_frozen` | the parameters that a pattern selects, such as `biases` |

Frozen parameters cost their forward pass, and the backward pass through them if something below is
trained: no gradient of them is formed, nothing is stored for them, and back-propagation stops at
the first trained layer.
"""

from bk_jax.peft.lora import Lora, lora
from bk_jax.peft.parts import combine, partition, with_frozen
from bk_jax.peft.select import biases

__all__ = ["Lora", "biases", "combine", "lora", "partition", "with_frozen"]
