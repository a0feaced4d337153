// What handlers accept and what they say otherwise. Values are tested with the
// kernels; here one number shows that operands arrive in the right places.
#include "xla_plugin/handlers.h"

#include <new>
#include <stdexcept>
#include <string>

#include "gtest/gtest.h"
#include "tests/xla_plugin/buffers.h"
#include "xla_plugin/ffi_helpers.h"

namespace bk {
namespace {

std::string GhostNormError(const TestBuffer& a, const TestBuffer& g,
                           const TestBuffer& sq_norm, const TestBuffer& upper) {
  SerialParallel serial;
  return std::string(RunGhostNorm(serial, a, g, sq_norm, upper).message());
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
            "bk_ghost_norm: a: expected rank 4, got f32[2,3,4]");
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
  return std::string(
      RunClipFactor(clipping, sq_norms, clip_norm, is_padding, factor, norm)
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
  SerialParallel serial;
  return std::string(RunClippedGemm(serial, lhs, factor, rhs, sum).message());
}

TEST(ClippedGemmHandlerTest, ComputesForEveryType) {
  for (ffi::DataType type : {ffi::F32, ffi::BF16, ffi::F16, ffi::F64}) {
    const ffi::DataType result = AccumulatorType(type);
    EXPECT_EQ(ClippedGemmError({type, {2, 1, 3, 4}}, {result, {2}},
                               {type, {2, 1, 3, 5}}, {result, {1, 4, 5}}),
              "");
  }
  TestBuffer lhs(ffi::F32, {1, 1, 1, 1});
  TestBuffer factor(ffi::F32, {1});
  TestBuffer rhs(ffi::F32, {1, 1, 1, 1});
  TestBuffer sum(ffi::F32, {1, 1, 1});
  *lhs.data<float>() = 2;
  *factor.data<float>() = 5;
  *rhs.data<float>() = 3;
  EXPECT_EQ(ClippedGemmError(lhs, factor, rhs, sum), "");
  EXPECT_EQ(*sum.data<float>(), 30);
}

TEST(ClippedGemmHandlerTest, NamesOperationOperandExpectedAndGot) {
  const ffi::DataType f32 = ffi::F32;
  EXPECT_EQ(ClippedGemmError({f32, {}}, {f32, {2}}, {f32, {2, 1, 3, 5}},
                             {f32, {1, 4, 5}}),
            "bk_clipped_gemm: lhs: expected rank 4, got f32[]");
  EXPECT_EQ(ClippedGemmError({f32, {2, 1, 3, 4}}, {f32, {7}},
                             {f32, {2, 1, 3, 5}}, {f32, {1, 4, 5}}),
            "bk_clipped_gemm: factor: expected f32[2], got f32[7]");
  EXPECT_EQ(ClippedGemmError({f32, {2, 1, 3, 4}}, {f32, {2}},
                             {f32, {2, 9, 3, 5}}, {f32, {1, 4, 5}}),
            "bk_clipped_gemm: rhs: expected f32[2,1,3,5], got f32[2,9,3,5]");
  EXPECT_EQ(ClippedGemmError({f32, {2, 1, 3, 4}}, {f32, {2}},
                             {f32, {2, 1, 3, 5}}, {f32, {1, 5, 4}}),
            "bk_clipped_gemm: sum: expected f32[1,4,5], got f32[1,5,4]");
}

TEST(RunHandlerTest, NothingThrownGetsOut) {
  const ffi::Error known = RunHandler(
      "bk_x", []() -> absl::Status { throw std::runtime_error("broken"); });
  EXPECT_EQ(known.message(), "bk_x: broken");
  const ffi::Error memory =
      RunHandler("bk_x", []() -> absl::Status { throw std::bad_alloc(); });
  EXPECT_TRUE(memory.failure());
  const ffi::Error unknown =
      RunHandler("bk_x", []() -> absl::Status { throw 3; });
  EXPECT_EQ(unknown.message(), "bk_x: unknown exception");
}

TEST(RunHandlerTest, StatusKeepsItsCode) {
  EXPECT_TRUE(RunHandler("bk_x", [] { return absl::OkStatus(); }).success());
  const ffi::Error error =
      RunHandler("bk_x", [] { return absl::InvalidArgumentError("no"); });
  EXPECT_EQ(error.errc(), ffi::ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.message(), "no");
}

}  // namespace
}  // namespace bk
