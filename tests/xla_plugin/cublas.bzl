"""The test of products by cublasLt, and the same test with mistakes in what it tests."""

load("//custom_calls/cuda:nvcc.bzl", "KERNELS", "ONLY_WITH_CUDA")

# Name, what custom_calls/cuda/cublas/product.cc says, what the mutant says instead.
CUBLAS_MUTANTS = [
    ("wrong_stride", "int64_t{height * rows}", "int64_t{height}"),
    ("beta_forgotten", "operands.add ? 1 : 0", "0"),
    ("not_transposed", "static_cast<int32_t>(CUBLAS_OP_T)", "static_cast<int32_t>(CUBLAS_OP_N)"),
]

# Sources that include cublasLt.h have CUDA's own headers, as handlers have, not those of the emulated kernels.
_COPTS = ["-UBK_CUDA_ON_CPU"]
_SOURCES = [
    "buffers.h",
    "cublas_test.cc",
    "run_cpu.h",
    "run_cuda.h",
]
_DEPS = [
    "//tests/cublas_stand_in:stand_in_header",
    "//third_party:googletest_main",
    "//xla_plugin:cpu_targets",
    "//xla_plugin:cuda_targets",
    "//custom_calls/cuda/cublas:dense",
]
_KERNELS = ["//custom_calls/cuda:%s_emulated" % name for name in KERNELS]

def cublas_test(name):
    native.cc_test(
        name = name,
        size = "small",
        srcs = _SOURCES,
        copts = _COPTS,
        data = ["//tests/cublas_stand_in:libcublasLt.so.13"],
        tags = ["no_sanitizer"],
        target_compatible_with = ONLY_WITH_CUDA,
        deps = _DEPS + ["//custom_calls/cuda/cublas:product"] + _KERNELS,
    )

def cublas_mutant(name, right, wrong):
    """A program: the test with a mistake in product.cc."""
    native.genrule(
        name = name + "_source",
        srcs = ["//custom_calls/cuda/cublas:product.cc"],
        outs = [name + ".cc"],
        cmd = "$(location //tests/custom_calls/cuda/mutants:mutate) $< $@ '%s' '%s'" % (right, wrong),
        tools = ["//tests/custom_calls/cuda/mutants:mutate"],
    )
    native.cc_binary(
        name = name,
        testonly = 1,
        srcs = _SOURCES + [name + ".cc"],
        copts = _COPTS + ["-w"],
        tags = ["no_sanitizer"],
        target_compatible_with = ONLY_WITH_CUDA,
        deps = _DEPS + _KERNELS,
    )
