"""Kernels for GPUs: the same source compiled by nvcc, and by the host compiler for the emulation."""

# Every kernel: its .cu and its .h with launchers have this stem.
KERNELS = [
    "banded_gaussian",
    "clip_factor",
    "clipped_gemm",
    "clipped_scatter",
    "conv_grad",
    "direct_norm",
    "embedding_norm",
    "gaussian",
    "gaussians",
    "ghost_norm",
    "per_sample_grad",
    "scaled_copy",
    "tied_cross",
    "weighted_sum",
]

# Machine code for these: it runs on every GPU of the same major number, 8.6 and 8.9, 10.3, 12.1 as well. 9.0 is alone
# in its number, and "a" gives it wgmma. PTX is compiled by the driver for GPUs of other numbers after it, on which
# nobody has counted tensor-core instructions (docs/gpu_kernels.md).
_ARCHITECTURES = ["80", "90a", "100", "120"]
_PTX = "100"

# Without -fmad=false nvcc would join products and sums where it likes, and other bits would come out than in the
# emulation. The bounds of norms count roundings of the code as it is written.
_FLAGS = [
    "-std=c++17",
    "-O3",
    "-fmad=false",
    "--expt-relaxed-constexpr",
    "-Xcompiler=-fPIC,-Wall,-Wextra",
    "-Werror=all-warnings",
    "--resource-usage",
    "--threads=2",
] + ["-gencode=arch=compute_%s,code=sm_%s" % (a, a) for a in _ARCHITECTURES] + [
    "-gencode=arch=compute_{a},code=compute_{a}".format(a = _PTX),
]

# Every load and store of emulated kernels calls tests/cuda_on_cpu/callbacks.cc: checks of bounds and of races.
EMULATED_COPTS = [
    "-fsanitize=thread",
    "-ffp-contract=off",
    "-Wno-unknown-pragmas",
]

# Kernels on the main loop, which has a second form for GPUs with warpgroups (warpgroup_loop.cuh): emulated twice.
WARPGROUP_KERNELS = [
    "clipped_gemm",
    "direct_norm",
    "ghost_norm",
    "per_sample_grad",
    "tied_cross",
]

ONLY_WITH_CUDA = select({
    "//custom_calls/cuda:enabled": [],
    "//conditions:default": ["@platforms//:incompatible"],
})

def cuda_kernel(name, hdrs = []):
    """`name`.cu, with launchers declared in `name`.h; `hdrs` if that is not among the device headers.

    Defines `name` (a library, only with --config=cuda), `name`.resources.txt (what ptxas says of registers and spills)
    and `name`_emulated (the same source for the CPU; see tests/cuda_on_cpu).
    """
    archive = "lib%s_device.a" % name
    native.genrule(
        name = name + "_nvcc",
        srcs = [
            name + ".cu",
            "//custom_calls/cuda:device_headers",
        ] + hdrs,
        outs = [
            archive,
            name + ".resources.txt",
        ],
        cmd = "$(location @cuda//:nvcc) -lib -o $(location {archive}) -I. {flags} $(location {source}) ".format(
            archive = archive,
            flags = " ".join(_FLAGS),
            source = name + ".cu",
        ) + "> $(location {log}) 2>&1 || {{ cat $(location {log}) >&2; exit 1; }}".format(
            log = name + ".resources.txt",
        ),
        target_compatible_with = ONLY_WITH_CUDA,
        tools = ["@cuda//:nvcc"],
    )
    native.cc_library(
        name = name,
        srcs = [archive],
        target_compatible_with = ONLY_WITH_CUDA,
        deps = ["@cuda//:runtime"],
    )
    native.cc_library(
        name = name + "_emulated",
        testonly = 1,
        srcs = [name + ".cu"],
        textual_hdrs = hdrs,
        copts = EMULATED_COPTS + ["-xc++"],
        tags = ["no_sanitizer"],
        deps = ["//custom_calls/cuda:emulated_headers"],
    )
    if name in WARPGROUP_KERNELS:
        native.cc_library(
            name = name + "_emulated_sm90",
            testonly = 1,
            srcs = [name + ".cu"],
            copts = EMULATED_COPTS + ["-xc++"],
            local_defines = ["BK_EMULATED_SM90"],
            tags = ["no_sanitizer"],
            deps = ["//custom_calls/cuda:emulated_headers"],
        )
