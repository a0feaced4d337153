"""One library per instruction set: the same bodies, other flags."""

def isa_library(name, copts = [], cpu = None):
    native.cc_library(
        name = name,
        srcs = [
            name + ".cc",
            "clipped_gemm-inl.h",
            "clipped_scatter-inl.h",
            "embedding_norm-inl.h",
            "ghost_norm-inl.h",
            "table-inl.h",
            "tied_cross-inl.h",
            "vector-inl.h",
            "wide-inl.h",
        ],
        # Contraction makes a * b + c one FMA; the error bounds hold with and without it.
        copts = copts + [
            "-O3",
            "-ffp-contract=fast",
            "-fno-math-errno",
        ],
        target_compatible_with = ["@platforms//cpu:" + cpu] if cpu else [],
        deps = [":kernels"],
    )
