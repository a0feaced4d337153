// Dense operations of 16-bit elements at sizes around those of tiles, with
// tiles of both sizes: rows that are aligned and rows that are not.
#include <cmath>
#include <vector>

#include "custom_calls/reference/clipped_gemm.h"
#include "custom_calls/reference/ghost_norm.h"
#include "custom_calls/reference/per_sample_grad.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/cuda/dense_calls.h"
#include "tests/custom_calls/cuda/tile_sides.h"
#include "tests/custom_calls/norm_cases.h"

namespace bk::cuda {
namespace {

class DenseTilesTest : public TileSidesTest {
 protected:
  template <class T>
  void ExpectExactNorms(const DenseShape& shape) {
    const Array<T> a = Integers<T>(random_, Rows(shape) * shape.d);
    const Array<T> g = Integers<T>(random_, Rows(shape) * shape.p);
    std::vector<double> expected(shape.batch);
    reference::GhostNorm(shape, a.data(), g.data(), expected.data());
    for (Kind kind : kKinds) {
      SCOPED_TRACE(static_cast<int>(kind));
      const Norms<T> norms = NormsOf(kind, shape, a, g);
      for (int64_t i = 0; i < shape.batch; ++i) {
        ASSERT_EQ(norms.sq_norm[i], static_cast<float>(expected[i]));
        ASSERT_GE(norms.upper[i], expected[i]);
      }
      if (kind != Kind::kPerSample) continue;
      std::vector<double> grad(norms.grad.size());
      reference::PerSampleGrad(shape, a.data(), g.data(), grad.data());
      for (size_t k = 0; k < grad.size(); ++k) {
        ASSERT_EQ(norms.grad[k], grad[k]);
      }
    }
  }

  template <class T>
  void ExpectExactSum(const ClippedGemmShape& shape) {
    const int64_t rows = shape.batch * shape.weights * shape.positions;
    const auto lhs = Integers<T>(random_, rows * shape.m);
    const auto rhs = Integers<T>(random_, rows * shape.n);
    const auto factor = Integers<float>(random_, shape.batch, 1);
    std::vector<double> expected(shape.weights * shape.m * shape.n);
    reference::ClippedGemm(shape, lhs.data(), factor.data(), rhs.data(),
                           expected.data());
    for (bool accumulate : {false, true}) {
      const auto sum = SumOf<T>(shape, lhs, factor, rhs, accumulate);
      for (size_t k = 0; k < expected.size(); ++k) {
        ASSERT_EQ(sum[k], expected[k] + (accumulate ? 100 : 0));
      }
    }
  }

  Random random_{20221001};
};

constexpr DenseShape kNormShapes[] = {
    {1, 1, 63, 64, 65},  {1, 1, 64, 128, 7},  {1, 1, 65, 129, 72},
    {1, 1, 127, 72, 80}, {1, 1, 128, 65, 66}, {1, 1, 129, 16, 136},
    {2, 1, 100, 67, 24}, {1, 2, 70, 1, 257},  {1, 1, 330, 8, 8},
};

TEST_F(DenseTilesTest, NormsAreExactOnSmallIntegers) {
  for (bool large : {false, true}) {
    UseLargeTiles(large);
    for (const DenseShape& shape : kNormShapes) {
      SCOPED_TRACE(testing::Message()
                   << "large " << large << ", B, N, T, d, p = " << shape.batch
                   << ", " << shape.weights << ", " << shape.positions << ", "
                   << shape.d << ", " << shape.p);
      ExpectExactNorms<BFloat16>(shape);
      if (shape.positions < 70) ExpectExactNorms<Float16>(shape);
    }
  }
}

TEST_F(DenseTilesTest, SumsAreExactOnSmallIntegers) {
  for (bool large : {false, true}) {
    UseLargeTiles(large);
    for (const ClippedGemmShape& shape :
         {ClippedGemmShape{3, 1, 64, 128, 65},
          ClippedGemmShape{3, 2, 24, 72, 80},
          ClippedGemmShape{4, 1, 100, 136, 129},
          ClippedGemmShape{2, 1, 65, 63, 127},
          ClippedGemmShape{2, 1, 129, 257, 1}}) {
      SCOPED_TRACE(testing::Message()
                   << "large " << large << ", B, N, T, m, n = " << shape.batch
                   << ", " << shape.weights << ", " << shape.positions << ", "
                   << shape.m << ", " << shape.n);
      ExpectExactSum<BFloat16>(shape);
      if (shape.positions < 70) ExpectExactSum<Float16>(shape);
    }
  }
}

// A tile of one example reaches over its last row into the next example.
TEST_F(DenseTilesTest, NotANumberStaysWithItsExample) {
  for (bool large : {false, true}) {
    for (int64_t p : {65, 72}) {
      UseLargeTiles(large);
      const DenseShape shape = {3, 1, 70, 72, p};
      Array<BFloat16> a = Integers<BFloat16>(random_, Rows(shape) * shape.d);
      Array<BFloat16> g = Integers<BFloat16>(random_, Rows(shape) * shape.p);
      std::vector<double> expected(shape.batch);
      reference::GhostNorm(shape, a.data(), g.data(), expected.data());
      for (int64_t k = 0; k < 70 * shape.p; ++k) {
        g[70 * shape.p + k] = reference::FromDouble<BFloat16>(NAN);
      }
      for (Kind kind : kKinds) {
        SCOPED_TRACE(testing::Message() << large << p << int(kind));
        const Norms<BFloat16> norms = NormsOf(kind, shape, a, g);
        EXPECT_EQ(norms.sq_norm[0], static_cast<float>(expected[0]));
        EXPECT_EQ(norms.sq_norm[2], static_cast<float>(expected[2]));
        EXPECT_TRUE(std::isnan(norms.upper[1]));
      }
      Array<float> factor(3);
      factor[0] = factor[2] = 1;
      const ClippedGemmShape sums = {3, 1, 70, 72, p};
      for (float x : SumOf<BFloat16>(sums, a, factor, g, false)) {
        ASSERT_TRUE(std::isfinite(x));
      }
    }
  }
}

// Rows whose squares a tensor core flushes to zero are not zero rows.
TEST_F(DenseTilesTest, ZeroIsZeroAndTinyIsNot) {
  for (bool large : {false, true}) {
    UseLargeTiles(large);
    const DenseShape shape = {3, 1, 70, 72, 80};
    Array<BFloat16> a = Integers<BFloat16>(random_, Rows(shape) * shape.d);
    Array<BFloat16> g(Rows(shape) * shape.p);
    for (int64_t k = 0; k < shape.p; ++k) {
      g[140 * shape.p + k] = reference::FromDouble<BFloat16>(0x1p-70);
      g[70 * shape.p + k] = reference::FromDouble<BFloat16>(1);
    }
    for (Kind kind : {Kind::kGhost, Kind::kDirect}) {
      const Norms<BFloat16> norms = NormsOf(kind, shape, a, g);
      EXPECT_EQ(norms.upper[0], 0);
      EXPECT_GT(norms.sq_norm[1], 0);
      EXPECT_GT(norms.upper[2], 0);
    }
  }
}

// Nothing cancels and one feature has all of a row: every addition errs by as
// much as the bound counts, and S has to be whole, though it comes from
// diagonals.
TEST_F(DenseTilesTest, BoundsHoldWhereEveryAdditionErrs) {
  const DenseShape shape = {1, 1, 130, 72, 136};
  Array<BFloat16> a(130 * shape.d), g(130 * shape.p);
  for (int64_t t = 0; t < 130; ++t) {
    a[t * shape.d] = g[t * shape.p] = reference::FromDouble<BFloat16>(1);
  }
  for (bool large : {false, true}) {
    for (int direction : {0, -1, 1}) {
      UseLargeTiles(large);
      if (!device::SetTensorCoreError(direction) && direction != 0) continue;
      for (Kind kind : {Kind::kGhost, Kind::kDirect}) {
        SCOPED_TRACE(testing::Message() << large << direction << int(kind));
        const Norms<BFloat16> norms = NormsOf(kind, shape, a, g);
        EXPECT_GE(norms.upper[0], 130.0 * 130.0);
        EXPECT_LE(norms.upper[0], 1.0001 * 130.0 * 130.0);
      }
    }
  }
}

// Offsets within a tile have 31 bits.
TEST_F(DenseTilesTest, TooWideRowsAreAnError) {
  constexpr int64_t kWide = (int64_t{1} << 26) + 8;
  const BFloat16* none = nullptr;
  float* out = nullptr;
  EXPECT_EQ(
      GhostNorm({0, 1, 2, 8, kWide}, none, none, nullptr, out, out, nullptr),
      cudaErrorInvalidValue);
  EXPECT_EQ(
      DirectNorm({0, 1, 2, kWide, 8}, none, none, nullptr, out, out, nullptr),
      cudaErrorInvalidValue);
  EXPECT_EQ(ClippedGemm({0, 1, 64, 8, kWide}, none, out, none, false, nullptr,
                        out, nullptr),
            cudaErrorInvalidValue);
}

TEST_F(DenseTilesTest, NoBankConflicts) {
  if (!device::CountBankConflicts(true)) {
    GTEST_SKIP() << "nobody counts the wavefronts of a GPU";
  }
  for (bool large : {false, true}) {
    UseLargeTiles(large);
    ExpectExactNorms<BFloat16>({1, 1, 70, 72, 136});
    ExpectExactSum<BFloat16>({1, 1, 70, 72, 136});
    const device::BankConflict worst = device::WorstBankConflict();
    EXPECT_LE(worst.factor, 2) << worst.text;
  }
}

// A pure function of the shape, which planners may call.
TEST_F(DenseTilesTest, SidesOfTiles) {
  EXPECT_EQ(TileSide(216, 65, 65), 128);
  EXPECT_EQ(TileSide(215, 65, 65), 64);
  EXPECT_EQ(TileSide(1 << 20, 64, 1000), 64);
  EXPECT_EQ(TileSide(1, 1536, 2304), 128);
}

}  // namespace
}  // namespace bk::cuda
