// The oracle itself, against numbers worked out by hand.
#include <cmath>
#include <cstdint>

#include "custom_calls/reference/clip_factor.h"
#include "custom_calls/reference/clipped_gemm.h"
#include "custom_calls/reference/convert.h"
#include "custom_calls/reference/ghost_norm.h"
#include "gtest/gtest.h"

namespace bk::reference {
namespace {

TEST(ReferenceConvertTest, KnownBitPatterns) {
  EXPECT_EQ(FromDouble<BFloat16>(1).bits, 0x3f80);
  EXPECT_EQ(FromDouble<BFloat16>(-2).bits, 0xc000);
  EXPECT_EQ(FromDouble<Float16>(1).bits, 0x3c00);
  EXPECT_EQ(FromDouble<Float16>(65504).bits, 0x7bff);
  EXPECT_EQ(FromDouble<Float16>(65520).bits, 0x7c00);
  EXPECT_EQ(FromDouble<Float16>(0x1p-24).bits, 0x0001);
  EXPECT_EQ(FromDouble<Float16>(-HUGE_VAL).bits, 0xfc00);
  EXPECT_TRUE(std::isnan(ToDouble(FromDouble<Float16>(std::nan("")))));
  // 1 + 2^-8 lies between two bf16 numbers: ties go to even.
  EXPECT_EQ(ToDouble(FromDouble<BFloat16>(1 + 0x1p-8)), 1);
  EXPECT_EQ(ToDouble(FromDouble<BFloat16>(1 + 0x3p-8)), 1 + 0x4p-8);
}

template <class T>
void ExpectRoundTrip() {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const T value = {static_cast<uint16_t>(bits)};
    if (std::isnan(ToDouble(value))) continue;
    ASSERT_EQ(FromDouble<T>(ToDouble(value)).bits, bits);
  }
}

TEST(ReferenceConvertTest, EveryValueSurvivesTheRoundTrip) {
  ExpectRoundTrip<BFloat16>();
  ExpectRoundTrip<Float16>();
}

// a = [1 2; 3 4], g = [1; -1]: gradient a^T g = [-2; -2].
TEST(ReferenceGhostNormTest, TwoPositions) {
  const float a[] = {1, 2, 3, 4};
  const float g[] = {1, -1};
  double sq_norm = 0;
  double scale = 0;
  GhostNorm({1, 1, 2, 2, 1}, a, g, &sq_norm);
  GhostNormScale({1, 1, 2, 2, 1}, a, g, &scale);
  EXPECT_EQ(sq_norm, 8);
  EXPECT_DOUBLE_EQ(scale, std::pow(std::sqrt(5.0) + 5, 2));
}

// Two examples of one position: factor 2 times [1 2]^T [3], factor 0 skipped.
TEST(ReferenceClippedGemmTest, SkipsFactorZero) {
  const float lhs[] = {1, 2, NAN, NAN};
  const float rhs[] = {3, NAN};
  const float factor[] = {2, 0};
  double sum[2];
  ClippedGemm({2, 1, 1, 2, 1}, lhs, factor, rhs, sum);
  EXPECT_EQ(sum[0], 6);
  EXPECT_EQ(sum[1], 12);
}

TEST(ReferenceClipFactorTest, NormTwoBoundOne) {
  EXPECT_EQ(ClipFactor(Clipping::kAbadi, 2, 1), 0.5);
  EXPECT_EQ(ClipFactor(Clipping::kNormalize, 2, 1), 0.5);
  EXPECT_EQ(ClipFactor(Clipping::kAutomatic, 2, 1), 1 / 2.01);
  EXPECT_EQ(ClipFactor(Clipping::kIndicator, 2, 1), 0);
}

}  // namespace
}  // namespace bk::reference
