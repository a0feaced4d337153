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
        srcs = ["amx/%s.cc" % name],
        copts = copts + _BODY_COPTS,
        target_compatible_with = ["@platforms//cpu:" + cpu] if cpu else [],
        deps = [":bodies"],
        **kwargs
    )

def isa_library(name, vector_bytes, copts = [], cpu = None):
    """Defines library `name` with the table of an instruction set, and `name`_noise with its noise bodies."""
    common = {
        "target_compatible_with": ["@platforms//cpu:" + cpu] if cpu else [],
        "deps": [":bodies"],
    }
    native.cc_library(
        name = name + "_noise",
        srcs = [
            "noise/gaussian_isa.cc",
            "noise/noisy_update_isa.cc",
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
        srcs = ["isa/%s.cc" % name],
        copts = copts + _BODY_COPTS,
        target_compatible_with = common["target_compatible_with"],
        deps = common["deps"] + [":" + name + "_noise"],
    )
