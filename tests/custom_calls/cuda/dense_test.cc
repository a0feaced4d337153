// Norms and sums of dense layers on a device against the definitions.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <vector>

#include "custom_calls/cuda/direct_norm.h"
#include "custom_calls/reference/clipped_gemm.h"
#include "custom_calls/reference/ghost_norm.h"
#include "custom_calls/reference/per_sample_grad.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/cuda/dense_calls.h"
#include "tests/custom_calls/cuda/device_buffer.h"
#include "tests/custom_calls/norm_cases.h"
#include "tests/custom_calls/test_data.h"
#include "tests/custom_calls/tolerance.h"

namespace bk::cuda {
namespace {

// Norms with tensor cores as they are, and with errors as large as assumed.
template <class Body>
void ForEachTensorCore(Body&& body) {
  for (int direction : {0, -1, 1}) {
    if (!device::SetTensorCoreError(direction) && direction != 0) continue;
    for (Kind kind : {Kind::kGhost, Kind::kDirect}) {
      SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind)
                                      << ", error " << direction);
      body(kind);
    }
  }
  device::SetTensorCoreError(0);
}

class DenseNormTest : public DeviceTest {
 protected:
  template <class T>
  void ExpectExactOnIntegers(const DenseShape& shape) {
    SCOPED_TRACE(testing::Message() << "B, N, T, d, p = " << shape.batch << ", "
                                    << shape.weights << ", " << shape.positions
                                    << ", " << shape.d << ", " << shape.p);
    const Array<T> a = Integers<T>(random_, Rows(shape) * shape.d);
    const Array<T> g = Integers<T>(random_, Rows(shape) * shape.p);
    std::vector<double> expected(shape.batch);
    reference::GhostNorm(shape, a.data(), g.data(), expected.data());
    for (Kind kind : kKinds) {
      SCOPED_TRACE(static_cast<int>(kind));
      const Norms<T> norms = NormsOf(kind, shape, a, g);
      for (int64_t i = 0; i < shape.batch; ++i) {
        ASSERT_EQ(norms.sq_norm[i], static_cast<Accumulator<T>>(expected[i]));
        ASSERT_GE(norms.upper[i], expected[i]);
        ASSERT_LE(norms.upper[i], 1.0405 * expected[i] + FLT_MIN);
      }
      if (kind != Kind::kPerSample) continue;
      std::vector<double> grad(norms.grad.size());
      reference::PerSampleGrad(shape, a.data(), g.data(), grad.data());
      for (size_t k = 0; k < grad.size(); ++k) {
        ASSERT_EQ(norms.grad[k], grad[k]);
      }
    }
  }

  Random random_{20221001};
};

// Both sides of a tile (64), of a chunk (8, 16 or 32) and of 16 bytes; rows
// that are aligned and rows that are not; empty dimensions.
TEST_F(DenseNormTest, ExactOnSmallIntegers) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (const DenseShape& shape :
         {DenseShape{2, 1, 5, 16, 8}, DenseShape{1, 2, 65, 33, 9},
          DenseShape{3, 1, 1, 70, 17}, DenseShape{1, 1, 130, 8, 3},
          DenseShape{1, 1, 31, 1, 65}, DenseShape{0, 1, 3, 4, 5},
          DenseShape{2, 0, 3, 4, 5}, DenseShape{2, 1, 0, 4, 5},
          DenseShape{2, 1, 3, 0, 5}}) {
      ExpectExactOnIntegers<T>(shape);
    }
  });
}

TEST_F(DenseNormTest, FewBlocksDoAllItems) {
  device::LimitBlocks(2);
  ExpectExactOnIntegers<BFloat16>({3, 2, 70, 9, 66});
  ExpectExactOnIntegers<float>({3, 2, 9, 9, 66});
}

// The bounds hold however much positions cancel, and are tight where the
// gradient is formed.
TEST_F(DenseNormTest, BoundsHoldOnCancellingData) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (double noise : {1.0, 1e-2, 1e-4, 0.0}) {
      const auto c = Cancelling<T>(random_, 40, 24, 20, 1, noise);
      long double exact = 0;
      double scale = 0;
      reference::GhostNorm(c.shape(), c.a.data(), c.g.data(), &exact);
      reference::GhostNormScale(c.shape(), c.a.data(), c.g.data(), &scale);
      ForEachTensorCore([&](Kind kind) {
        SCOPED_TRACE(noise);
        const Norms<T> norms = NormsOf(kind, c.shape(), c.a, c.g);
        EXPECT_GE(static_cast<long double>(norms.upper[0]), exact);
        EXPECT_GE(norms.upper[0], norms.sq_norm[0]);
        const double slack = 400 * UnitRoundoff<T>() * std::sqrt(scale);
        EXPECT_LE(
            std::sqrt(static_cast<double>(norms.upper[0])),
            1.021 * std::sqrt(static_cast<double>(exact)) + slack + 1e-15);
      });
    }
  });
}

// Nothing cancels, and one feature has all of a row: every addition of a tensor
// core may err by as much as the bound counts, and all in one direction.
TEST_F(DenseNormTest, BoundsHoldWhereEveryAdditionErrs) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (int64_t positions : {1, 3, 70}) {
      const DenseShape shape = {1, 1, positions, 33, 65};
      Array<T> a(positions * shape.d), g(positions * shape.p);
      for (int64_t t = 0; t < positions; ++t) {
        a[t * shape.d] = reference::FromDouble<T>(1);
        g[t * shape.p] = reference::FromDouble<T>(1);
      }
      const auto exact = static_cast<double>(positions * positions);
      ForEachTensorCore([&](Kind kind) {
        SCOPED_TRACE(positions);
        const Norms<T> norms = NormsOf(kind, shape, a, g);
        EXPECT_GE(static_cast<double>(norms.upper[0]), exact);
        EXPECT_LE(static_cast<double>(norms.upper[0]), 1.0001 * exact);
      });
    }
  });
}

// Where no example has to be recomputed, that costs a look at an empty list,
// and not one at every tile of the gradients.
TEST_F(DenseNormTest, NothingToRecomputeCostsNothing) {
  if (!device::Accesses().has_value()) {
    GTEST_SKIP() << "nobody counts the loads of a GPU";
  }
  device::LimitBlocks(1);
  std::vector<int64_t> accesses;
  for (int64_t p : {64, 1024}) {
    const DenseShape shape = {1, 1, 2, 8, p};
    auto a = DeviceBuffer<float>::Of(Integers<float>(random_, 16), "a");
    auto g = DeviceBuffer<float>::Of(Integers<float>(random_, 2 * p), "g");
    auto list = DeviceBuffer<int32_t>::Of(std::vector<int32_t>{0, 0}, "list");
    DeviceBuffer<double> squares(ProductTileCount(shape), "squares");
    DeviceBuffer<double> spreads(SpreadSegments(shape), "spreads");
    DeviceBuffer<float> norm(1, "norm"), upper(1, "upper");
    const int64_t before = *device::Accesses();
    EXPECT_TRUE(Succeeded(DirectNormWhere(
        shape, LayerPairs<float>(1, a.data(), g.data()), {list.data()},
        spreads.data(), squares.data(), norm.data(), upper.data(), nullptr)));
    accesses.push_back(*device::Accesses() - before);
  }
  EXPECT_EQ(accesses[0], accesses[1]);
}

// Some versions of XLA take a call that launches nothing for an error.
TEST_F(DenseNormTest, EmptyBatchesLaunchSomething) {
  if (!device::Launches().has_value()) {
    GTEST_SKIP() << "nobody counts the launches of a GPU";
  }
  for (Kind kind : kKinds) {
    const int64_t before = *device::Launches();
    NormsOf(kind, {0, 1, 3, 4, 5}, Array<float>(0), Array<float>(0));
    EXPECT_GT(*device::Launches(), before);
  }
}

TEST_F(DenseNormTest, NeverBelowOnManySmallCases) {
  std::uniform_int_distribution<int64_t> size(1, 9);
  std::uniform_real_distribution<double> exponent(-30, 15);
  for (int repeat = 0; repeat < 40; ++repeat) {
    const DenseShape shape = {1, 1, size(random_), size(random_),
                              size(random_)};
    const auto a = Normals<float>(random_, shape.positions * shape.d,
                                  std::pow(10, exponent(random_)));
    const auto g = Normals<float>(random_, shape.positions * shape.p,
                                  std::pow(10, exponent(random_)));
    long double exact = 0;
    reference::GhostNorm(shape, a.data(), g.data(), &exact);
    ForEachTensorCore([&](Kind kind) {
      const Norms<float> norms = NormsOf(kind, shape, a, g);
      ASSERT_GE(static_cast<long double>(norms.upper[0]), exact);
      ASSERT_GE(norms.upper[0], FLT_MIN);
    });
  }
}

TEST_F(DenseNormTest, ZeroIsZeroAndNonFiniteStaysWithItsExample) {
  const DenseShape shape = {3, 1, 5, 6, 4};
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    Array<T> a = Integers<T>(random_, Rows(shape) * shape.d);
    Array<T> g = Integers<T>(random_, Rows(shape) * shape.p);
    std::fill_n(a.data(), 5 * shape.d, T{});  // example 0
    for (double bad : {std::nan(""), HUGE_VAL}) {
      a[5 * shape.d + 3] = reference::FromDouble<T>(bad);  // example 1
      std::fill_n(g.data() + 5 * shape.p, shape.p, T{});
      for (Kind kind : {Kind::kGhost, Kind::kDirect}) {
        const Norms<T> norms = NormsOf(kind, shape, a, g);
        EXPECT_EQ(norms.upper[0], 0);
        EXPECT_FALSE(std::isfinite(norms.sq_norm[1]));
        EXPECT_FALSE(std::isfinite(norms.upper[1]));
        EXPECT_TRUE(std::isfinite(norms.upper[2]));
      }
    }
  });
}

class CudaClippedGemmTest : public DeviceTest {
 protected:
  Random random_{20221001};
};

// Long and short examples, one share of rows and several.
TEST_F(CudaClippedGemmTest, ExactOnSmallIntegers) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (const ClippedGemmShape& shape :
         {ClippedGemmShape{3, 2, 5, 9, 7}, ClippedGemmShape{2, 1, 40, 65, 8},
          ClippedGemmShape{9, 1, 33, 16, 24}, ClippedGemmShape{260, 1, 1, 5, 3},
          ClippedGemmShape{0, 1, 3, 4, 5}, ClippedGemmShape{2, 1, 0, 4, 5},
          ClippedGemmShape{2, 1, 3, 0, 5}}) {
      SCOPED_TRACE(testing::Message() << shape.batch << " " << shape.positions);
      const int64_t rows = shape.batch * shape.weights * shape.positions;
      const auto lhs = Integers<T>(random_, rows * shape.m);
      const auto rhs = Integers<T>(random_, rows * shape.n);
      const auto factor = Integers<Accumulator<T>>(random_, shape.batch, 1);
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
  });
}

TEST_F(CudaClippedGemmTest, RandomWithinTheDerivedTolerance) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (int64_t positions : {3, 50}) {
      const ClippedGemmShape shape = {4, 1, positions, 20, 12};
      const int64_t rows = shape.batch * positions;
      const auto lhs = Normals<T>(random_, rows * shape.m);
      const auto rhs = Normals<T>(random_, rows * shape.n);
      const auto factor = Normals<Accumulator<T>>(random_, shape.batch);
      device::SetTensorCoreError(positions == 3 ? -1 : 0);
      const auto sum = SumOf<T>(shape, lhs, factor, rhs, false);
      std::vector<double> expected(shape.m * shape.n), scale(expected.size());
      reference::ClippedGemm(shape, lhs.data(), factor.data(), rhs.data(),
                             expected.data(), scale.data());
      // At most 3 roundings for a term, of chunks of up to 32, see engine.cuh.
      for (size_t k = 0; k < expected.size(); ++k) {
        ASSERT_NEAR(static_cast<double>(sum[k]), expected[k],
                    SumTolerance<T>(3 * rows + 120, scale[k]));
      }
    }
  });
}

TEST_F(CudaClippedGemmTest, FactorZeroIsNeverRead) {
  for (int64_t positions : {2, 30}) {
    const ClippedGemmShape shape = {2, 1, positions, 3, 3};
    auto lhs = Integers<BFloat16>(random_, 2 * positions * 3);
    auto rhs = Integers<BFloat16>(random_, 2 * positions * 3);
    Array<float> factor(2);
    factor[1] = 2;
    for (int64_t k = 0; k < positions * 3; ++k) {
      lhs[k] = rhs[k] = reference::FromDouble<BFloat16>(NAN);
    }
    for (float x : SumOf<BFloat16>(shape, lhs, factor, rhs, false)) {
      EXPECT_TRUE(std::isfinite(x));
    }
  }
}

}  // namespace
}  // namespace bk::cuda
