"""Kernels of ours with a mistake each, which the emulated tests have to find."""

load("//custom_calls/cuda:nvcc.bzl", "EMULATED_COPTS", "KERNELS")

# Name: (kernel, what its source says, what the mutant says instead, the test that must fail, a word of its message).
MUTANTS = {
    "diagonal_twice": (
        "ghost_norm",
        "pair.i == pair.j ? total : 2 * total",
        "2 * total",
        "DenseNormTest.ExactOnSmallIntegers",
        "equality",
    ),
    "no_barrier": (
        "ghost_norm",
        "right_next.Store(pieces.right[half ^ 1]);\n    __syncthreads();",
        "right_next.Store(pieces.right[half ^ 1]);",
        "DenseNormTest.ExactOnSmallIntegers",
        "race",
    ),
    "past_the_end": (
        "weighted_sum",
        "if (k >= shape.size) continue;",
        "",
        "WeightedSumTest.ExactOnSmallIntegers",
        "bounds",
    ),
    "two_blocks_one_row": (
        "clipped_scatter",
        "row == kUnread || !first ||",
        "row == kUnread ||",
        "ClippedScatterTest.ExactOnSmallIntegers",
        "race",
    ),
}

def mutant(name):
    """A program: the emulated tests with the mutant `name` in place of its kernel."""
    kernel, right, wrong = MUTANTS[name][:3]
    native.genrule(
        name = name + "_source",
        srcs = ["//custom_calls/cuda:%s.cu" % kernel],
        outs = [name + ".cc"],
        cmd = "$(location :mutate) $< $@ '%s' '%s'" % (right, wrong),
        tools = [":mutate"],
    )
    native.cc_binary(
        name = name,
        testonly = 1,
        srcs = [name + ".cc"],
        copts = EMULATED_COPTS + ["-w"],  # a mutant may leave a variable unused
        tags = ["no_sanitizer"],
        deps = [
            "//custom_calls/cuda:emulated_headers",
            "//tests/custom_calls/cuda:emulated_device",
            "//tests/custom_calls/cuda:kernel_tests",
            "//tests/custom_calls/cuda:engine_probe_emulated",
        ] + ["//custom_calls/cuda:%s_emulated" % other for other in KERNELS if other != kernel],
    )
