// Tiles in ordinary code: one step against its description, and what is special
// about kernels that use tiles.
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <vector>

#include "custom_calls/cpu/amx/soft_tile.h"
#include "custom_calls/cpu/dense/clipped_gemm.h"
#include "custom_calls/cpu/dense/direct_norm.h"
#include "custom_calls/cpu/dense/ghost_norm.h"
#include "custom_calls/cpu/dense/per_sample_grad.h"
#include "custom_calls/reference/clipped_gemm.h"
#include "custom_calls/reference/ghost_norm.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/norm_cases.h"
#include "tests/custom_calls/test_data.h"

namespace bk {
namespace {

using reference::FromDouble;
using reference::ToDouble;

// left[m, k] and right[k, n] as numbers; k < 32.
struct Step {
  SoftTile left = {}, right = {}, sums = {};
  static uint32_t Half(double x, int64_t k) {
    return uint32_t{FromDouble<BFloat16>(x).bits} << (k % 2 * 16);
  }
  void Left(int64_t m, int64_t k, double x) {
    left.words[m][k / 2] |= Half(x, k);
  }
  void Right(int64_t k, int64_t n, double x) {
    right.words[k / 2][n] |= Half(x, k);
  }
  float Sum(int64_t m, int64_t n) {
    DotSoftTiles(left, right, sums);
    return soft_tile::FromBits(sums.words[m][n]);
  }
};

TEST(SoftTileTest, MultipliesMatrices) {
  Step step;
  Random random;
  std::uniform_int_distribution<int> integer(-8, 8);
  int left[16][32], right[32][16];
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 32; ++k) {
      step.Left(i, k, left[i][k] = integer(random));
      step.Right(k, i, right[k][i] = integer(random));
    }
  }
  for (int repeat : {1, 2}) {
    step.Sum(0, 0);
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 16; ++n) {
        int expected = 0;
        for (int k = 0; k < 32; ++k) expected += left[m][k] * right[k][n];
        ASSERT_EQ(soft_tile::FromBits(step.sums.words[m][n]),
                  repeat * expected);
      }
    }
  }
}

// Products 2^24, 1, 1, ... at even places: each 1 is lost, as the halfway case
// rounds to even. At odd places they would add up by themselves.
TEST(SoftTileTest, RoundsAfterEveryProductWithEvenAndOddApart) {
  Step lost, kept;
  lost.Left(0, 0, 4096);
  lost.Right(0, 0, 4096);
  kept = lost;
  for (int64_t k = 1; k < 16; ++k) {
    lost.Left(0, 2 * k, 1);
    lost.Right(2 * k, 0, 1);
    kept.Left(0, 2 * k + 1, 1);
    kept.Right(2 * k + 1, 0, 1);
  }
  EXPECT_EQ(lost.Sum(0, 0), 0x1p24F);
  EXPECT_EQ(kept.Sum(0, 0), 0x1p24F + 16);  // 15 more, rounded to even
}

TEST(SoftTileTest, TakesDenormalNumbersForZero) {
  struct Case {
    double x, y, sum;
    float expected;
  };
  for (const Case& c : {Case{0x1p-127, 0x1p100, 0, 0},       // an input
                        Case{0x1p-64, 0x1p-63, 0, 0},        // a product
                        Case{0x1p-63, 0x1p-63, 0, FLT_MIN},  // no denormal
                        Case{0, 0, 0x1p-127, 0},             // the sum before
                        Case{-0x1p-63, 0x1.8p-63, FLT_MIN, 0},  // the sum after
                        Case{0x1p-64, 0x1p-64, 1, 1}}) {
    Step step;
    step.Left(0, 0, c.x);
    step.Right(0, 0, c.y);
    step.sums.words[0][0] = soft_tile::ToBits(static_cast<float>(c.sum));
    EXPECT_EQ(step.Sum(0, 0), c.expected) << c.x << " " << c.y;
  }
}

// A product that no float holds, together with a sum that brings it back.
TEST(SoftTileTest, DoesNotRoundProducts) {
  Step step;
  step.Left(0, 0, -0x1p100);
  step.Right(0, 0, 0x1p27);
  step.Left(0, 2, 0x1p100);
  step.Right(2, 0, 0x1p28);
  EXPECT_EQ(step.Sum(0, 0), 0x1p127F);
}

TEST(SoftTileTest, InfinityAndNanStay) {
  Step step;
  step.Left(0, 0, HUGE_VAL);
  step.Right(0, 0, -1);
  step.Right(0, 1, 0);
  EXPECT_EQ(step.Sum(0, 0), -HUGE_VALF);
  EXPECT_TRUE(std::isnan(step.Sum(0, 1)));
}

class SoftTilesTest : public testing::Test {
 protected:
  SerialParallel serial_;
  Random random_{20221001};
};

// Around tiles (16), blocks and steps (32), the depth of sums (128, 320) and
// of copies (512), strips (96) and tasks (136 positions; 192 rows).
TEST_F(SoftTilesTest, ExactAroundTiles) {
  std::vector<DenseShape> shapes = {{1, 1, 136, 3, 5},    {1, 1, 321, 9, 2},
                                    {1, 1, 33, 513, 127}, {8, 1, 136, 17, 1},
                                    {1, 1, 32, 200, 97},  {2, 2, 150, 33, 31}};
  for (int64_t positions : {31, 32, 33, 47, 48, 49, 64, 65}) {
    for (int64_t d : {0, 1, 2, 15, 16, 17, 31, 32, 33}) {
      shapes.push_back({1, 1, positions, d, (7 * d + positions) % 35});
    }
  }
  for (const DenseShape& shape : shapes) {
    SCOPED_TRACE(testing::Message() << "T, d, p = " << shape.positions << ", "
                                    << shape.d << ", " << shape.p);
    const auto a = Integers<BFloat16>(random_, Rows(shape) * shape.d);
    const auto g = Integers<BFloat16>(random_, Rows(shape) * shape.p);
    std::vector<double> expected(shape.batch);
    reference::GhostNorm(shape, a.data(), g.data(), expected.data());
    Array<float> norm(shape.batch), upper(shape.batch);
    for (auto function : {GhostNorm<BFloat16>, DirectNorm<BFloat16>}) {
      function(SoftTiles(), serial_, shape, a.data(), g.data(), norm.data(),
               upper.data());
      for (int64_t i = 0; i < shape.batch; ++i) {
        ASSERT_EQ(norm[i], static_cast<float>(expected[i]));
        ASSERT_GE(upper[i], expected[i]);
      }
    }
    const int64_t size = shape.weights * shape.d * shape.p;
    const ClippedGemmShape gemm = {shape.batch, shape.weights, shape.positions,
                                   shape.d, shape.p};
    const auto factor = Integers<float>(random_, shape.batch);
    auto sum = Filled<float>(size, [] { return std::nan(""); });
    std::vector<double> clipped(size);
    ClippedGemm(SoftTiles(), serial_, gemm, a.data(), factor.data(), g.data(),
                sum.data());
    reference::ClippedGemm(gemm, a.data(), factor.data(), g.data(),
                           clipped.data());
    for (int64_t k = 0; k < size; ++k) ASSERT_EQ(sum[k], clipped[k]);
  }
}

// The kernels of other types know denormal numbers; so do kernels of few
// positions. That tiles do not shows that they are used.
TEST_F(SoftTilesTest, AreUsedFrom32PositionsOn) {
  for (int64_t positions : {31, 32}) {
    const DenseShape shape = {1, 1, positions, 1, 1};
    Array<BFloat16> a(positions), g(positions);
    a[0] = FromDouble<BFloat16>(0x1p-127);
    g[0] = FromDouble<BFloat16>(0x1p63);
    float grad, norm, upper;
    PerSampleGrad(SoftTiles(), serial_, shape, a.data(), g.data(), &grad, &norm,
                  &upper);
    EXPECT_EQ(grad, positions < kTilePositions ? 0x1p-64F : 0.0F);
    float factor = 0.5F, sum;
    ClippedGemm(SoftTiles(), serial_, {1, 1, positions, 1, 1}, a.data(),
                &factor, g.data(), &sum);
    EXPECT_EQ(sum, grad / 2);
    DirectNorm(SoftTiles(), serial_, shape, a.data(), g.data(), &norm, &upper);
    EXPECT_EQ(norm, grad * grad);
    EXPECT_GE(upper, 0x1p-128F);
    GhostNorm(SoftTiles(), serial_, shape, a.data(), g.data(), &norm, &upper);
    EXPECT_GE(upper, 0x1p-128F);
  }
}

// Factors have more bits than bfloat16: a scaled operand would round them.
TEST_F(SoftTilesTest, FactorsAreNotRoundedToBFloat16) {
  const int64_t positions = 40;
  Array<BFloat16> ones(positions);
  for (int64_t t = 0; t < positions; ++t) ones[t] = FromDouble<BFloat16>(1);
  const float factor = 1 + 0x1p-20F;
  float sum;
  ClippedGemm(SoftTiles(), serial_, {1, 1, positions, 1, 1}, ones.data(),
              &factor, ones.data(), &sum);
  EXPECT_EQ(sum, 40 * factor);
}

enum Kind { kWideRange, kDenormal, kUnderflow, kCancelling, kAllAlike, kKinds };

// Rows that tiles have trouble with: exponents over all of the range, denormal
// numbers beside huge ones, products that are denormal, sums over positions
// that cancel, all elements alike so that every addition rounds in the same
// direction.
void Fill(Random& random, Kind kind, bool second, int64_t positions,
          int64_t width, Array<BFloat16>& x) {
  std::uniform_real_distribution<double> unit(-1, 1);
  std::uniform_int_distribution<int> wide(-100, 20), near(-133, -124);
  const double alike = 1 + unit(random) / 2;
  for (int64_t k = 0; k < positions * width; ++k) {
    double value = unit(random);
    if (kind == kWideRange) value = std::ldexp(value, wide(random) / 2);
    if (kind == kDenormal) {
      value = second ? std::ldexp(value, 60) : std::ldexp(value, near(random));
    }
    if (kind == kUnderflow) value = std::ldexp(0.7, second ? 40 : -63);
    if (kind == kCancelling) value = second ? value : 1 + value * 0x1p-6;
    if (kind == kAllAlike) value = alike;
    x[k] = FromDouble<BFloat16>(value);
    if ((kind == kDenormal || kind == kCancelling) && second &&
        k / width % 2 == 1) {
      x[k] = FromDouble<BFloat16>(-ToDouble(x[k - width]));
    }
  }
}

TEST_F(SoftTilesTest, NoNormIsUnderestimated) {
  std::uniform_int_distribution<int64_t> size(1, 40), length(32, 70);
  for (int repeat = 0; repeat < 400; ++repeat) {
    const auto kind = static_cast<Kind>(repeat % kKinds);
    const DenseShape shape = {1, 1, length(random_), size(random_),
                              size(random_)};
    Array<BFloat16> a(shape.positions * shape.d), g(shape.positions * shape.p);
    Fill(random_, kind, false, shape.positions, shape.d, a);
    Fill(random_, kind, true, shape.positions, shape.p, g);
    long double exact = 0;
    reference::GhostNorm(shape, a.data(), g.data(), &exact);
    for (auto function : {GhostNorm<BFloat16>, DirectNorm<BFloat16>}) {
      float norm, upper;
      function(SoftTiles(), serial_, shape, a.data(), g.data(), &norm, &upper);
      ASSERT_GE(static_cast<long double>(upper), exact)
          << "kind " << kind << ", T, d, p = " << shape.positions << ", "
          << shape.d << ", " << shape.p;
    }
  }
}

// On ordinary data the bound costs next to nothing.
TEST_F(SoftTilesTest, BoundIsTight) {
  const DenseShape shape = {1, 1, 40, 600, 520};
  const auto a = Normals<BFloat16>(random_, Rows(shape) * shape.d);
  const auto g = Normals<BFloat16>(random_, Rows(shape) * shape.p);
  float norm, upper;
  double exact = 0, scale = 0;
  GhostNorm(SoftTiles(), serial_, shape, a.data(), g.data(), &norm, &upper);
  reference::GhostNorm(shape, a.data(), g.data(), &exact);
  reference::GhostNormScale(shape, a.data(), g.data(), &scale);
  EXPECT_NEAR(norm, exact, 1e-6 * scale);
  EXPECT_GE(upper, exact);
  EXPECT_LE(upper, exact + 2e-5 * scale);
}

}  // namespace
}  // namespace bk
