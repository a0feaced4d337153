"""Parameter-efficient fine-tuning: train little of a model, privately, without changing the model.

| function | trains |
|---|---|
| `lora` | low-rank updates of weights that are multiplied by, found in the traced program |
| `partition`, `combine`, `with_frozen` | the parameters that a pattern selects, such as `biases` |

What is not trained costs nothing beyond its forward pass: no gradient of it is formed, nothing is
kept for it, and back-propagation ends at the first trained layer.
"""

from bk_jax.peft.lora import Lora, lora
from bk_jax.peft.parts import combine, partition, with_frozen
from bk_jax.peft.select import biases

__all__ = ["Lora", "biases", "combine", "lora", "partition", "with_frozen"]
