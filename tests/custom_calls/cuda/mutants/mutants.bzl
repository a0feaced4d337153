"""Kernels of ours with a mistake each, which the emulated tests have to find."""

load("//custom_calls/cuda:nvcc.bzl", "EMULATED_COPTS", "KERNELS")

# Name: (kernel, what its source says, what the mutant says instead, the test that must fail, a word of its message).
# "kernel:header" changes a header instead, for that kernel alone; "kernel@sm90:header" on the device with warpgroups.
MUTANTS = {
    "contracted": (
        "banded_gaussian",
        "sums[k] = sums[k] + z * stddev;",
        "sums[k] = Fma(z, stddev, sums[k]);",
        "BandedGaussianTest.SameBitsAsTheCpu",
        "equality",
    ),
    "odd_lanes_misplaced": (
        "banded_gaussian:noise_rows.cuh",
        "kLanesOfGroup / 2 * (lane % 2) + lane / 2",
        "lane",
        "BandedGaussianTest.SameBitsAsTheCpu",
        "equality",
    ),
    "copies_not_there": (
        "ghost_norm:main_loop.cuh",
        "WaitForCopies<kStages - 2>();",
        "WaitForCopies<kStages - 1>();",
        "DenseTilesTest.NormsAreExactOnSmallIntegers",
        "pending",
    ),
    "diagonal_twice": (
        "ghost_norm",
        "pair.i == pair.j ? total : 2 * total",
        "2 * total",
        "DenseNormTest.ExactOnSmallIntegers",
        "equality",
    ),
    "first_pointer_speaks_for_all": (
        "ghost_norm:layers.h",
        "l < count; ++l",
        "l < 1; ++l",
        "LayersTest.AlignmentMayDiffer",
        "misaligned",
    ),
    "gram_diagonal_twice": (
        "ghost_norm:gram_kernel.cuh",
        "diagonal ? total : 2 * total",
        "2 * total",
        "DenseTilesTest.NormsAreExactOnSmallIntegers",
        "equality",
    ),
    "half_the_roundings": (
        "ghost_norm:chain.h",
        "2 * (kStepTerms + 2)",
        "(kStepTerms + 2)",
        "DenseTilesTest.BoundsHoldWhereEveryAdditionErrs",
        "norms.upper[0]",
    ),
    "layers_read_the_first": (
        "ghost_norm:gram_kernel.cuh",
        "layers.left[place.layer]",
        "layers.left[0]",
        "LayersTest.TilesOfBothSizes",
        "equality",
    ),
    "layers_read_the_first_f32": (
        "ghost_norm",
        "layers.right[place.layer]",
        "layers.right[0]",
        "LayersTest.NormsAddUp",
        "equality",
    ),
    "layers_write_the_first": (
        "clipped_gemm",
        "return out[item.weight / weights]",
        "return out[0]",
        "LayersTest.SumsAreThoseOfEachLayer",
        "race",
    ),
    "no_barrier_in_the_loop": (
        "clipped_gemm:main_loop.cuh",
        "__syncthreads();\n    const SharedAddress piece",
        "const SharedAddress piece",
        "DenseTilesTest.SumsAreExactOnSmallIntegers",
        "shared memory",
    ),
    "no_proxy_fence": (
        "clipped_gemm@sm90:warpgroup_loop.cuh",
        "FenceAsyncProxy();",
        "",
        "DenseTilesTest.SumsAreExactOnSmallIntegers",
        "no proxy fence",
    ),
    "no_swizzle": (
        "ghost_norm:tiling.cuh",
        "kTurns = 8",
        "kTurns = 1",
        "DenseTilesTest.NoBankConflicts",
        "worst.factor",
    ),
    "no_turn": (
        "direct_norm:fragments.cuh",
        "(unit ^ turn % kTurns) * kUnit",
        "unit * kUnit",
        "DenseTilesTest.NormsAreExactOnSmallIntegers",
        "equality",
    ),
    "past_the_last_row": (
        "ghost_norm:tile_loader.cuh",
        "(row < last ? row : last) * row_units",
        "row * row_units",
        "DenseTilesTest.NormsAreExactOnSmallIntegers",
        "bounds",
    ),
    "products_not_there": (
        "ghost_norm@sm90:warpgroup_loop.cuh",
        "ring_.Advance(source);\n    WarpgroupWait<0>(sums.at);",
        "ring_.Advance(source);\n    WarpgroupWait<1>(sums.at);",
        "DenseTilesTest.NormsAreExactOnSmallIntegers",
        "wgmma",
    ),
    "shift_past_the_end": (
        "clipped_gemm:shifted_loader.cuh",
        "low + (two ? 16 : 8) > this->end",
        "false",
        "DenseTilesTest.SumsAreExactOnSmallIntegers",
        "bounds",
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
    "groups_of_the_next_array": (
        "gaussians",
        "first[middle] <= group",
        "first[middle] < group",
        "GaussiansTest.SameBitsAsTheCpu",
        "equality",
    ),
    "one_stream_for_all": (
        "gaussians",
        "table.stream[array]",
        "table.stream[0]",
        "GaussiansTest.SameBitsAsTheCpu",
        "equality",
    ),
    "one_launch_for_all": (
        "gaussians",
        "while (begin < count)",
        "while (false)",
        "GaussiansTest.OneLaunchUpToAsManyArraysAsATableHas",
        "equality",
    ),
    "same_address_same_rows": (
        "tied_cross:gram.cuh",
        "x.first == y.first && x.rows == y.rows",
        "x.first == y.first",
        "TiedTilesTest.OneArrayMayBeTheBeginningOfTheOther",
        "equality",
    ),
    "sums_share_scratch": (
        "tied_cross:tied_tiles.cuh",
        "BlockSum(own.inner, scratch);\n    __syncthreads();",
        "BlockSum(own.inner, scratch);",
        "TiedTilesTest.ExactOnSmallIntegers",
        "race",
    ),
    "tied_half_the_roundings": (
        "tied_cross:chain.h",
        "2 * (kStepTerms + 2)",
        "(kStepTerms + 2)",
        "TiedTilesTest.BoundHoldsWhereEveryAdditionErrs",
        "tied.upper[0]",
    ),
    "tiny_is_zero": (
        "tied_cross",
        "sizeof(T) == 2 ? kTensorTiny",
        "sizeof(T) == 2 ? 0",
        "TiedTilesTest.ZeroIsZeroAndTinyIsNot",
        "tied.upper[1]",
    ),
    "unread_tokens_count": (
        "tied_cross:tied_tiles.cuh",
        "const bool read = tokens.id[column] >= 0;",
        "const bool read = true;",
        "TiedTilesTest.NotANumberStaysWithItsTokenAndItsExample",
        "clean",
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
    place, right, wrong = MUTANTS[name][:3]
    kernel, _, device = place.split(":")[0].partition("@")
    changed = "//custom_calls/cuda:" + (place.split(":")[1] if ":" in place else kernel + ".cu")
    rest = ["//custom_calls/cuda:%s.cu" % kernel] if ":" in place else []

    # A changed header stands before the source, whose own include of it then does nothing.
    native.genrule(
        name = name + "_source",
        srcs = [changed] + rest,
        outs = [name + ".cc"],
        cmd = " ".join(
            ["$(location :mutate) $(location %s) $@ '%s' '%s'" % (changed, right, wrong)] +
            ["&& cat $(location %s) >> $@" % source for source in rest],
        ),
        tools = [":mutate"],
    )
    native.cc_binary(
        name = name,
        testonly = 1,
        srcs = [name + ".cc"],
        copts = EMULATED_COPTS + ["-w"],  # a mutant may leave a variable unused
        local_defines = ["BK_EMULATED_SM90"] if device == "sm90" else [],
        tags = ["no_sanitizer"],
        deps = [
            "//custom_calls/cuda:emulated_headers",
            "//tests/custom_calls/cuda:emulated_device",
            "//tests/custom_calls/cuda:kernel_tests",
            "//tests/custom_calls/cuda:engine_probe_emulated",
        ] + ["//custom_calls/cuda:%s_emulated" % other for other in KERNELS if other != kernel],
    )
