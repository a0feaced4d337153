"""Default rates: for machines that were not measured, by instruction set or from a data sheet.

The rates of CPUs are of two cores.
"""

from __future__ import annotations

from bk_jax.planning.device_seconds import SHARE
from bk_jax.planning.devices import DEVICES, find_device
from bk_jax.planning.rates import Rates

# Products, ghost norms, direct norms, memory (weighted sums of 128 MB) and noise: docs/performance.md,
# two cores of an AMD EPYC (Zen 3), 16 and 17 November 2026. Our convolutions: the kernels alone, 50 to
# 75 GF/s of one core; XLA's kernel gradients by the ratios to them in the same document; pixel Gram
# matrices at 0.6 of a kernel gradient. Everything else, convolutions of 16 pixels and direct norms of
# 16 tokens were not measured there: they are those of AVX-512, relative to the product.
AVX2 = Rates(
    source="default for AVX2",
    product=148e9,
    product_16=127e9,
    batched_product=77e9,
    weight_gradient=((128, 112e9), (1024, 145e9)),
    convolution=((16, 67e9), (49, 93e9), (196, 130e9), (784, 140e9), (3136, 126e9)),
    kernel_gradient=((16, 75e9), (49, 90e9), (196, 80e9), (784, 50e9), (3136, 50e9)),
    clipped_gemm=((128, 141e9), (1024, 148e9)),
    direct_norm=((16, 126e9), (128, 150e9)),
    ghost_norm=((16, 37e9), (100, 99e9), (256, 118e9), (1000, 127e9)),
    conv_sum=((16, 33e9), (49, 100e9), (196, 125e9), (784, 130e9), (3136, 130e9)),
    conv_norm=((16, 53e9), (49, 110e9), (196, 130e9), (784, 130e9), (3136, 130e9)),
    pixel_gram=75e9,
    memory=25e9,
    transcendental=1.4e9,
    scatter=0.26e9,
    noise=0.8e9,
    operation=1.2e-6,
)
# Products, ghost norms, direct norms, memory and noise: docs/performance.md, two cores of an AMD EPYC
# (Zen 4), 17 November 2026. Everything else, and norms of 16 tokens: `bk_jax.calibrate()` on
# two cores of an Intel Xeon (AVX-512, AMX), 18 November 2026, other jobs running, relative to the
# product there (103 GF/s).
AVX512 = Rates(
    source="default for AVX-512",
    product=189e9,
    product_16=162e9,
    batched_product=98e9,
    weight_gradient=((128, 151e9), (1024, 186e9)),
    convolution=((16, 86e9), (49, 119e9), (196, 166e9), (784, 179e9), (3136, 161e9)),
    kernel_gradient=((16, 96e9), (49, 123e9), (196, 135e9), (784, 110e9), (3136, 67e9)),
    clipped_gemm=((128, 170e9), (1024, 187e9)),
    direct_norm=((16, 155e9), (128, 185e9)),
    ghost_norm=((16, 46e9), (100, 95e9), (256, 128e9), (1000, 150e9)),
    conv_sum=((16, 42e9), (49, 95e9), (196, 170e9), (784, 179e9), (3136, 166e9)),
    conv_norm=((16, 68e9), (49, 125e9), (196, 165e9), (784, 179e9), (3136, 177e9)),
    pixel_gram=82e9,
    memory=25e9,
    transcendental=1.8e9,
    scatter=0.33e9,
    noise=1.6e9,
    operation=1.2e-6,
)


def nominal_rates(device: str) -> Rates:
    """From the data sheet of a GPU: never measured. An unknown one counts as an A100 with 40 GB.

    >>> nominal_rates("NVIDIA H100 80GB HBM3").source
    'nominal for an H100 GPU, computed, not measured'
    """
    known = find_device(device)
    one = known or DEVICES[1]
    product, moved = SHARE * one.tf32, SHARE * one.memory
    gathered = SHARE * one.gathering * one.fp32
    instead = "" if known else f", in place of {device!r}"
    return Rates(
        source=f"nominal for {one.named()}{instead}, computed, not measured",
        device=one,
        product=product,
        product_16=SHARE * one.bf16,
        batched_product=product / 2,
        weight_gradient=((1, product),),
        convolution=((1, product),),
        kernel_gradient=((1, product),),
        clipped_gemm=((1, product),),
        direct_norm=((1, product),),
        ghost_norm=((1, product),),
        conv_sum=((1, gathered),),
        conv_norm=((1, gathered),),
        pixel_gram=gathered,
        memory=moved,
        transcendental=moved / 8,  # bound by memory: an element is read and written
        scatter=moved / 16,
        noise=moved / 16,
        operation=one.launch,
    )
