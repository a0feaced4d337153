// What handlers accept and what they say otherwise. Values are tested with the
// kernels; here one number shows that operands arrive in the right places.
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/xla_plugin/buffers.h"
#include "tests/xla_plugin/run_cpu.h"
#include "xla_plugin/ffi_frame.h"

namespace bk {
namespace {

std::string GhostNormError(const TestBuffer& a, const TestBuffer& g,
                           const TestBuffer& sq_norm, const TestBuffer& upper) {
  return std::string(
      RunCpu("bk_ghost_norm", {a, g}, {sq_norm, upper}).message());
}

TEST(GhostNormHandlerTest, ComputesForEveryType) {
  for (ffi::DataType type : {ffi::F32, ffi::BF16, ffi::F16, ffi::F64}) {
    const ffi::DataType result = AccumulatorType(type);
    EXPECT_EQ(GhostNormError({type, {2, 1, 3, 4}}, {type, {2, 1, 3, 5}},
                             {result, {2}}, {result, {2}}),
              "");
  }
  TestBuffer a(ffi::F32, {1, 1, 1, 1});
  TestBuffer g(ffi::F32, {1, 1, 1, 1});
  TestBuffer sq_norm(ffi::F32, {1});
  TestBuffer upper(ffi::F32, {1});
  *a.data<float>() = 2;
  *g.data<float>() = 3;
  EXPECT_EQ(GhostNormError(a, g, sq_norm, upper), "");
  EXPECT_EQ(*sq_norm.data<float>(), 36);
  EXPECT_GE(*upper.data<float>(), 36);
}

TEST(GhostNormHandlerTest, NamesOperationOperandExpectedAndGot) {
  const ffi::DataType f32 = ffi::F32;
  EXPECT_EQ(GhostNormError({f32, {2, 3, 4}}, {f32, {2, 1, 3, 5}}, {f32, {2}},
                           {f32, {2}}),
            "bk_ghost_norm: a: expected rank 2 or 4, got f32[2,3,4]");
  EXPECT_EQ(
      GhostNormError({f32, {2, 1, 3, 4}}, {f32, {5}}, {f32, {2}}, {f32, {2}}),
      "bk_ghost_norm: g: expected rank 4, got f32[5]");
  EXPECT_EQ(GhostNormError({f32, {2, 1, 3, 4}}, {f32, {2, 1, 7, 5}}, {f32, {2}},
                           {f32, {2}}),
            "bk_ghost_norm: g: expected f32[2,1,3,5], got f32[2,1,7,5]");
  EXPECT_EQ(GhostNormError({f32, {2, 1, 3, 4}}, {ffi::BF16, {2, 1, 3, 5}},
                           {f32, {2}}, {f32, {2}}),
            "bk_ghost_norm: g: expected f32[2,1,3,5], got bf16[2,1,3,5]");
  EXPECT_EQ(GhostNormError({f32, {2, 1, 3, 4}}, {f32, {2, 1, 3, 5}}, {f32, {3}},
                           {f32, {2}}),
            "bk_ghost_norm: sq_norm: expected f32[2], got f32[3]");
  EXPECT_EQ(GhostNormError({ffi::F64, {2, 1, 3, 4}}, {ffi::F64, {2, 1, 3, 5}},
                           {ffi::F64, {2}}, {f32, {2}}),
            "bk_ghost_norm: sq_norm_upper: expected f64[2], got f32[2]");
  EXPECT_EQ(GhostNormError({ffi::S32, {2, 1, 3, 4}}, {ffi::S32, {2, 1, 3, 5}},
                           {f32, {2}}, {f32, {2}}),
            "bk_ghost_norm: a: expected f32, bf16, f16 or f64, got s32");
}

std::string ClipFactorError(const std::string& clipping, ffi::DataType type,
                            const TestBuffer& clip_norm,
                            const TestBuffer& is_padding) {
  const TestBuffer sq_norms(type, {3, 2});
  const TestBuffer factor(type, {2});
  const TestBuffer norm(type, {2});
  return std::string(RunCpu("bk_clip_factor", {sq_norms, clip_norm, is_padding},
                            {factor, norm}, {{"clipping", clipping}})
                         .message());
}

TEST(ClipFactorHandlerTest, KnowsEveryClipping) {
  for (const char* clipping :
       {"abadi", "automatic", "normalize", "indicator"}) {
    for (ffi::DataType type : {ffi::F32, ffi::F64}) {
      EXPECT_EQ(ClipFactorError(clipping, type, {type, {}}, {ffi::PRED, {2}}),
                "");
    }
  }
}

TEST(ClipFactorHandlerTest, NamesOperationOperandExpectedAndGot) {
  EXPECT_EQ(ClipFactorError("flat", ffi::F32, {ffi::F32, {}}, {ffi::PRED, {2}}),
            "bk_clip_factor: clipping: expected abadi, automatic, normalize or "
            "indicator, got 'flat'");
  EXPECT_EQ(
      ClipFactorError("abadi", ffi::F32, {ffi::F64, {}}, {ffi::PRED, {2}}),
      "bk_clip_factor: clip_norm: expected f32[], got f64[]");
  EXPECT_EQ(ClipFactorError("abadi", ffi::F32, {ffi::F32, {}}, {ffi::S8, {2}}),
            "bk_clip_factor: is_padding: expected pred[2], got s8[2]");
  EXPECT_EQ(
      ClipFactorError("abadi", ffi::BF16, {ffi::BF16, {}}, {ffi::PRED, {2}}),
      "bk_clip_factor: sq_norms: expected f32 or f64, got bf16");
}

std::string ClippedGemmError(const TestBuffer& lhs, const TestBuffer& factor,
                             const TestBuffer& rhs, const TestBuffer& sum) {
  return std::string(
      RunCpu("bk_clipped_gemm", {lhs, factor, rhs}, {sum}).message());
}

TEST(ClippedGemmHandlerTest, ComputesForEveryType) {
  for (ffi::DataType type : {ffi::F32, ffi::BF16, ffi::F16, ffi::F64}) {
    const ffi::DataType result = AccumulatorType(type);
    EXPECT_EQ(ClippedGemmError({type, {2, 1, 3, 4}}, {result, {2}},
                               {type, {2, 1, 3, 5}}, {result, {4, 5}}),
              "");
    EXPECT_EQ(ClippedGemmError({type, {2, 2, 3, 4}}, {result, {2}},
                               {type, {2, 2, 3, 5}}, {result, {2, 4, 5}}),
              "");
  }
  TestBuffer lhs(ffi::F32, {1, 1, 1, 1});
  TestBuffer factor(ffi::F32, {1});
  TestBuffer rhs(ffi::F32, {1, 1, 1, 1});
  TestBuffer sum(ffi::F32, {1, 1});
  *lhs.data<float>() = 2;
  *factor.data<float>() = 5;
  *rhs.data<float>() = 3;
  EXPECT_EQ(ClippedGemmError(lhs, factor, rhs, sum), "");
  EXPECT_EQ(*sum.data<float>(), 30);
}

TEST(ClippedGemmHandlerTest, NamesOperationOperandExpectedAndGot) {
  const ffi::DataType f32 = ffi::F32;
  EXPECT_EQ(ClippedGemmError({f32, {}}, {f32, {2}}, {f32, {2, 1, 3, 5}},
                             {f32, {4, 5}}),
            "bk_clipped_gemm: lhs: expected rank 2 or 4, got f32[]");
  EXPECT_EQ(ClippedGemmError({f32, {2, 1, 3, 4}}, {f32, {7}},
                             {f32, {2, 1, 3, 5}}, {f32, {4, 5}}),
            "bk_clipped_gemm: factor: expected f32[2], got f32[7]");
  EXPECT_EQ(ClippedGemmError({f32, {2, 1, 3, 4}}, {f32, {2}},
                             {f32, {2, 9, 3, 5}}, {f32, {4, 5}}),
            "bk_clipped_gemm: rhs: expected f32[2,1,3,5], got f32[2,9,3,5]");
  EXPECT_EQ(ClippedGemmError({f32, {2, 1, 3, 4}}, {f32, {2}},
                             {f32, {2, 1, 3, 5}}, {f32, {5, 4}}),
            "bk_clipped_gemm: sum: expected f32[4,5], got f32[5,4]");
}

TEST(RowsTest, OneWeightMayComeAsAMatrix) {
  const ffi::DataType f32 = ffi::F32;
  EXPECT_EQ(
      GhostNormError({f32, {6, 4}}, {f32, {6, 5}}, {f32, {2}}, {f32, {2}}), "");
  EXPECT_EQ(
      GhostNormError({f32, {0, 4}}, {f32, {0, 5}}, {f32, {0}}, {f32, {0}}), "");
  EXPECT_EQ(
      ClippedGemmError({f32, {6, 4}}, {f32, {2}}, {f32, {6, 5}}, {f32, {4, 5}}),
      "");
  EXPECT_EQ(
      GhostNormError({f32, {7, 4}}, {f32, {7, 5}}, {f32, {2}}, {f32, {2}}),
      "bk_ghost_norm: a: expected the same rows for 2 examples, got "
      "f32[7,4]");
  EXPECT_EQ(
      GhostNormError({f32, {6, 4}}, {f32, {4, 5}}, {f32, {2}}, {f32, {2}}),
      "bk_ghost_norm: g: expected f32[6,5], got f32[4,5]");
  EXPECT_EQ(GhostNormError({f32, {6, 4}}, {f32, {2, 1, 3, 5}}, {f32, {2}},
                           {f32, {2}}),
            "bk_ghost_norm: g: expected rank 2, got f32[2,1,3,5]");
}

TEST(ClippedGemmHandlerTest, AddsToACopyUnlessTheBufferIsShared) {
  TestBuffer lhs(ffi::F32, {1, 1, 1, 1});
  TestBuffer factor(ffi::F32, {1});
  TestBuffer initial(ffi::F32, {1, 1});
  TestBuffer sum(ffi::F32, {1, 1});
  *lhs.data<float>() = 2;
  *factor.data<float>() = 5;
  *initial.data<float>() = 7;
  const auto add = [&](const TestBuffer& start, const TestBuffer& out) {
    return std::string(
        RunCpu("bk_clipped_gemm_add", {lhs, factor, lhs, start}, {out})
            .message());
  };
  EXPECT_EQ(add(initial, sum), "");
  EXPECT_EQ(*sum.data<float>(), 27);
  EXPECT_EQ(*initial.data<float>(), 7);
  EXPECT_EQ(add(initial, initial), "");
  EXPECT_EQ(*initial.data<float>(), 27);
  EXPECT_EQ(add({ffi::F32, {1, 1, 1}}, sum),
            "bk_clipped_gemm_add: initial: expected f32[1,1], got f32[1,1,1]");
}

TEST(PerSampleHandlersTest, ComputeForEveryType) {
  for (ffi::DataType type : {ffi::F32, ffi::BF16, ffi::F16, ffi::F64}) {
    const ffi::DataType result = AccumulatorType(type);
    const TestBuffer a(type, {2, 1, 3, 4}), g(type, {2, 1, 3, 5});
    const TestBuffer sq_norm(result, {2}), upper(result, {2});
    const TestBuffer grad(result, {2, 1, 4, 5}), sum(result, {5});
    EXPECT_TRUE(RunCpu("bk_direct_norm", {a, g}, {sq_norm, upper}).ok());
    EXPECT_TRUE(
        RunCpu("bk_per_sample_grad", {a, g}, {grad, sq_norm, upper}).ok());
    EXPECT_TRUE(
        RunCpu("bk_weighted_sum", {sq_norm, TestBuffer(type, {2, 5})}, {sum})
            .ok());
    const TestBuffer scalar(result, {});
    EXPECT_TRUE(
        RunCpu("bk_weighted_sum", {sq_norm, TestBuffer(type, {2})}, {scalar})
            .ok());
  }
  TestBuffer a(ffi::F32, {1, 1, 1, 1}), g(ffi::F32, {1, 1, 1, 1});
  TestBuffer sq_norm(ffi::F32, {1}), upper(ffi::F32, {1});
  TestBuffer grad(ffi::F32, {1, 1, 1, 1}), sum(ffi::F32, {1});
  *a.data<float>() = 2;
  *g.data<float>() = 3;
  EXPECT_TRUE(RunCpu("bk_direct_norm", {a, g}, {sq_norm, upper}).ok());
  EXPECT_EQ(*sq_norm.data<float>(), 36);
  EXPECT_TRUE(
      RunCpu("bk_per_sample_grad", {a, g}, {grad, sq_norm, upper}).ok());
  EXPECT_EQ(*grad.data<float>(), 6);
  EXPECT_GE(*upper.data<float>(), 36);
  TestBuffer factor(ffi::F32, {1}), x(ffi::F32, {1, 1});
  *factor.data<float>() = 5;
  *x.data<float>() = 7;
  EXPECT_TRUE(RunCpu("bk_weighted_sum", {factor, x}, {sum}).ok());
  EXPECT_EQ(*sum.data<float>(), 35);
}

TEST(PerSampleHandlersTest, ManyArraysInOneCall) {
  TestBuffer factor(ffi::F32, {1}), x(ffi::F32, {1, 1}), y(ffi::F32, {1});
  TestBuffer sum_x(ffi::F32, {1}), sum_y(ffi::F32, {});
  TestBuffer sq_norm(ffi::F32, {1}), upper(ffi::F32, {1});
  *factor.data<float>() = 5;
  *x.data<float>() = 7;
  *y.data<float>() = 2;
  ASSERT_TRUE(RunCpu("bk_weighted_sum", {factor, x, y}, {sum_x, sum_y}).ok());
  EXPECT_EQ(*sum_x.data<float>(), 35);
  EXPECT_EQ(*sum_y.data<float>(), 10);
  ASSERT_TRUE(RunCpu("bk_squared_norms", {x, y}, {sq_norm, upper}).ok());
  EXPECT_EQ(*sq_norm.data<float>(), 53);
  EXPECT_GE(*upper.data<float>(), 53);
}

TEST(PerSampleHandlersTest, ManyArraysMustGoTogether) {
  const ffi::DataType f32 = ffi::F32;
  const TestBuffer b(f32, {2}), x(f32, {2, 5}), sum(f32, {5});
  const TestBuffer other_batch(f32, {3, 5}), other_type(ffi::F64, {2, 5});
  const auto sums = [&](const TestBuffer& more) {
    return std::string(
        RunCpu("bk_weighted_sum", {b, x, more}, {sum, sum}).message());
  };
  EXPECT_EQ(sums(other_batch),
            "bk_weighted_sum: x: expected f32[2,5], got f32[3,5]");
  EXPECT_EQ(sums(other_type),
            "bk_weighted_sum: x: expected f32[2,5], got f64[2,5]");
  EXPECT_EQ(RunCpu("bk_weighted_sum", {b, x, x}, {sum}).message(),
            "bk_weighted_sum: number of results: expected 2, got 1");
  const auto norms = [&](const TestBuffer& more) {
    return std::string(RunCpu("bk_squared_norms", {x, more}, {b, b}).message());
  };
  EXPECT_EQ(norms(other_batch),
            "bk_squared_norms: x: expected f32[2,5], got f32[3,5]");
  EXPECT_EQ(norms(TestBuffer(f32, {})),
            "bk_squared_norms: x: expected an axis of examples, got f32[]");
  EXPECT_EQ(RunCpu("bk_squared_norms", {}, {b, b}).message(),
            "bk_squared_norms: number of operands: expected 1, got 0");
  EXPECT_EQ(RunCpu("bk_squared_norms", {x}, {b, sum}).message(),
            "bk_squared_norms: sq_norm_upper: expected f32[2], got f32[5]");
}

TEST(PerSampleHandlersTest, NameOperationOperandExpectedAndGot) {
  const ffi::DataType f32 = ffi::F32;
  const TestBuffer a(f32, {2, 1, 3, 4}), g(f32, {2, 1, 3, 5}), b(f32, {2});
  EXPECT_EQ(RunCpu("bk_direct_norm", {a, TestBuffer(f32, {2, 1, 7, 5})}, {b, b})
                .message(),
            "bk_direct_norm: g: expected f32[2,1,3,5], got f32[2,1,7,5]");
  EXPECT_EQ(
      RunCpu("bk_direct_norm", {a, g}, {b, TestBuffer(f32, {3})}).message(),
      "bk_direct_norm: sq_norm_upper: expected f32[2], got f32[3]");
  EXPECT_EQ(
      RunCpu("bk_per_sample_grad", {a, g},
             {TestBuffer(f32, {2, 1, 5, 4}), b, b})
          .message(),
      "bk_per_sample_grad: grad: expected f32[2,1,4,5], got f32[2,1,5,4]");
  EXPECT_EQ(RunCpu("bk_per_sample_grad", {b, g}, {a, b, b}).message(),
            "bk_per_sample_grad: a: expected rank 2 or 4, got f32[2]");
  EXPECT_EQ(RunCpu("bk_weighted_sum", {b, TestBuffer(f32, {})}, {b}).message(),
            "bk_weighted_sum: x: expected an axis of examples, got f32[]");
  EXPECT_EQ(RunCpu("bk_weighted_sum", {b, a}, {b}).message(),
            "bk_weighted_sum: sum: expected f32[1,3,4], got f32[2]");
  EXPECT_EQ(
      RunCpu("bk_weighted_sum", {b, TestBuffer(f32, {2, 5})}, {b}).message(),
      "bk_weighted_sum: sum: expected f32[5], got f32[2]");
}

// What bk_gaussian says about a block of `whole`, without noise.
TEST(AfterHandlerTest, GivesBackWhatCame) {
  TestBuffer x(ffi::F32, {2}), other(ffi::S32, {3}), out(ffi::F32, {2});
  x.data<float>()[1] = 5;
  EXPECT_EQ(RunCpu("bk_after", {x, other, other}, {out}), OkStatus());
  EXPECT_EQ(out.data<float>()[1], 5);
  EXPECT_EQ(RunCpu("bk_after", {x}, {x}), OkStatus());
  EXPECT_EQ(x.data<float>()[1], 5);
  EXPECT_EQ(RunCpu("bk_after", {x}, {other}).message(),
            "bk_after: out: expected f32[2], got s32[3]");
}

TEST(CallTest, CountsOperandsAndResults) {
  const TestBuffer a(ffi::F32, {2, 1, 3, 4}), b(ffi::F32, {2});
  EXPECT_EQ(RunCpu("bk_ghost_norm", {a}, {b, b}).message(),
            "bk_ghost_norm: number of operands: expected 2, got 1");
  EXPECT_EQ(RunCpu("bk_ghost_norm", {a, a}, {b, b, b}).message(),
            "bk_ghost_norm: number of results: expected 2, got 3");
}

TEST(CallTest, SaysWhichAttributeIsMissingOrOfAnotherType) {
  const TestBuffer key(ffi::U32, {8}), words(ffi::U32, {3});
  EXPECT_EQ(RunCpu("bk_chacha_bits", {key}, {words}).message(),
            "bk_chacha_bits: stream: expected an integer attribute, got none");
  EXPECT_EQ(
      RunCpu("bk_chacha_bits", {key}, {words}, {{"stream", "one"}}).message(),
      "bk_chacha_bits: stream: expected an integer attribute, got none");
  EXPECT_EQ(
      RunCpu("bk_chacha_bits", {key}, {words}, {{"stream", -1}}).message(),
      "bk_chacha_bits: stream: expected 0 <= value < 2^32, got -1");
}

TEST(BufferTest, ConvertsToPointersToItsOwnTypeOnly) {
  const TestBuffer numbers(ffi::F32, {2});
  const Buffer buffer = numbers;
  const float* data = buffer;
  EXPECT_EQ(data, buffer.data);
  EXPECT_THROW(static_cast<void>(static_cast<double*>(buffer)),
               std::logic_error);
}

TEST(GuardedTest, NothingThrownGetsOut) {
  const ffi::Error known =
      Guarded("bk_x", []() -> Status { throw std::runtime_error("broken"); });
  EXPECT_EQ(known.message(), "bk_x: broken");
  const ffi::Error memory =
      Guarded("bk_x", []() -> Status { throw std::bad_alloc(); });
  EXPECT_TRUE(memory.failure());
  const ffi::Error unknown = Guarded("bk_x", []() -> Status { throw 3; });
  EXPECT_EQ(unknown.message(), "bk_x: unknown exception");
}

TEST(GuardedTest, StatusKeepsItsCode) {
  EXPECT_TRUE(Guarded("bk_x", [] { return OkStatus(); }).success());
  const ffi::Error error =
      Guarded("bk_x", [] { return InvalidArgumentError("no"); });
  EXPECT_EQ(error.errc(), ffi::ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.message(), "no");
}

}  // namespace
}  // namespace bk
