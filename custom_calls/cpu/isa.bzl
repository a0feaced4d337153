"""One library per instruction set: the same bodies, other flags."""

# Contraction makes a * b + c one FMA; the error bounds hold with and without it.
_BODY_COPTS = [
    "-O3",
    "-ffp-contract=fast",
    "-fno-math-errno",
]

def tile_library(name, copts = [], cpu = None, **kwargs):
    """Defines library `name` with the kernels of tile registers, and of the vectors beside them."""
    native.cc_library(
        name = name,
        srcs = [name + ".cc"],
        copts = copts + _BODY_COPTS,
        target_compatible_with = ["@platforms//cpu:" + cpu] if cpu else [],
        deps = [":tile_bodies"],
        **kwargs
    )

def isa_library(name, vector_bytes, copts = [], cpu = None):
    """Defines library `name` with the table of an instruction set, and `name`_noise with its noise bodies."""
    common = {
        "target_compatible_with": ["@platforms//cpu:" + cpu] if cpu else [],
        "deps": [":kernels"],
    }
    native.cc_library(
        name = name + "_noise",
        srcs = [
            "chacha-inl.h",
            "gaussian_isa.cc",
            "gaussian_isa.h",
            "narrow-inl.h",
            "normal-inl.h",
            "vector-inl.h",
        ],
        # The same numbers everywhere: a contracted multiply-add rounds differently from its two parts.
        copts = copts + [
            "-O3",
            "-ffp-contract=off",
            "-fno-math-errno",
        ],
        local_defines = [
            "BK_ISA=" + name,
            "BK_VECTOR_BYTES=%d" % vector_bytes,
        ],
        **common
    )
    native.cc_library(
        name = name,
        srcs = [
            name + ".cc",
            "clipped_gemm-inl.h",
            "gaussian_isa.h",
            "clipped_scatter-inl.h",
            "conv-inl.h",
            "conv_depthwise-inl.h",
            "conv_gram-inl.h",
            "conv_pack-inl.h",
            "embedding_norm-inl.h",
            "ghost_norm-inl.h",
            "gram_tile-inl.h",
            "outer_product-inl.h",
            "pixel_lines-inl.h",
            "product-inl.h",
            "row_norms-inl.h",
            "table-inl.h",
            "tied_cross-inl.h",
            "vector-inl.h",
            "weighted_sum-inl.h",
            "wide-inl.h",
        ],
        copts = copts + _BODY_COPTS,
        target_compatible_with = common["target_compatible_with"],
        deps = common["deps"] + [":" + name + "_noise"],
    )
