// Ghost norm kernels of every instruction set against the definition.
#include "custom_calls/cpu/dense/ghost_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "custom_calls/reference/ghost_norm.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/norm_cases.h"
#include "tests/custom_calls/test_data.h"
#include "tests/custom_calls/tolerance.h"

namespace bk {
namespace {

template <class T>
struct Norms {
  Norms(const CpuKernels& kernels, Parallel& parallel, const DenseShape& shape,
        const Array<T>& a, const Array<T>& g)
      : sq_norm(shape.batch), upper(shape.batch) {
    GhostNorm(kernels, parallel, shape, a.data(), g.data(), sq_norm.data(),
              upper.data());
  }
  Array<Accumulator<T>> sq_norm;
  Array<Accumulator<T>> upper;
};

// 0, 1, odd ones, and both sides of vector widths (4, 8, 16 lanes).
const int64_t kWidths[] = {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33};
// 0, 1, both sides of micro-tiles (3, 4, 6), of a group (8), of a tile (48).
const int64_t kPositions[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 47, 48, 49, 97};

class GhostNormTest : public IsaTest {};
BK_INSTANTIATE_FOR_EACH_ISA_AND_SOFT_TILES(GhostNormTest);

TEST_P(GhostNormTest, ExactOnSmallIntegers) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (int64_t positions : kPositions) {
      for (int64_t d : kWidths) {
        const int64_t p = kWidths[(d + positions) % std::size(kWidths)];
        const DenseShape shape = {2, 2, positions, d, p};
        SCOPED_TRACE(testing::Message()
                     << "T, d, p = " << positions << ", " << d << ", " << p);
        const Array<T> a = Integers<T>(random_, Rows(shape) * d);
        const Array<T> g = Integers<T>(random_, Rows(shape) * p);
        const Norms<T> norms(kernels(), serial_, shape, a, g);
        double expected[2];
        reference::GhostNorm(shape, a.data(), g.data(), expected);
        for (int i = 0; i < 2; ++i) {
          ASSERT_EQ(norms.sq_norm[i], expected[i]);
          ASSERT_GE(norms.upper[i], expected[i]);
        }
      }
    }
  });
}

// Tiles of all sizes: how positions are cut depends on the number of examples.
// Features in whole vectors and not, in one block (512 or 768) and several.
TEST_P(GhostNormTest, ExactAcrossTilesAndBlocks) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (const DenseShape& shape :
         {DenseShape{8, 1, 100, 9, 17}, DenseShape{4, 2, 136, 7, 5},
          DenseShape{8, 1, 137, 5, 9}, DenseShape{2, 1, 300, 5, 3},
          DenseShape{1, 1, 7, 1100, 530}, DenseShape{1, 1, 21, 1600, 800},
          DenseShape{2, 1, 150, 16, 32}}) {
      SCOPED_TRACE(testing::Message()
                   << "T, d = " << shape.positions << ", " << shape.d);
      const Array<T> a = Integers<T>(random_, Rows(shape) * shape.d);
      const Array<T> g = Integers<T>(random_, Rows(shape) * shape.p);
      const Norms<T> norms(kernels(), serial_, shape, a, g);
      std::vector<double> expected(shape.batch);
      reference::GhostNorm(shape, a.data(), g.data(), expected.data());
      for (int64_t i = 0; i < shape.batch; ++i) {
        ASSERT_EQ(norms.sq_norm[i], static_cast<Accumulator<T>>(expected[i]));
        ASSERT_GE(norms.upper[i], expected[i]);
      }
    }
  });
}

// More features than kGramDepth, more positions than one tile.
TEST_P(GhostNormTest, RandomWithinTheDerivedTolerance) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (const DenseShape& shape :
         {DenseShape{3, 1, 1, 1300, 513}, DenseShape{2, 2, 60, 530, 9},
          DenseShape{1, 1, 101, 40, 37}}) {
      const Array<T> a = Normals<T>(random_, Rows(shape) * shape.d);
      const Array<T> g = Normals<T>(random_, Rows(shape) * shape.p, 1e-3);
      const Norms<T> norms(kernels(), serial_, shape, a, g);
      std::vector<double> expected(shape.batch);
      std::vector<double> scale(shape.batch);
      reference::GhostNorm(shape, a.data(), g.data(), expected.data());
      reference::GhostNormScale(shape, a.data(), g.data(), scale.data());
      for (int64_t i = 0; i < shape.batch; ++i) {
        const int64_t terms = std::max(shape.d, shape.p);
        EXPECT_NEAR(static_cast<double>(norms.sq_norm[i]), expected[i],
                    SumTolerance<T>(terms, scale[i]));
      }
    }
  });
}

TEST_P(GhostNormTest, NonFiniteInputSpoilsItsOwnExampleOnly) {
  CheckThatNonFiniteSpoilsItsOwnExample<Norms>(kernels(), serial_, random_);
}

TEST_P(GhostNormTest, OverflowIsNotFinite) {
  for (int64_t positions : {1, 2}) {
    const DenseShape shape = {1, 1, positions, 1, 1};
    Array<float> a(positions);
    Array<float> g(positions);
    std::fill_n(a.data(), positions, 1e19f);
    std::fill_n(g.data(), positions, 1e19f);
    // Gram matrices fit, their product (1e76) does not fit a float.
    const Norms<float> product(kernels(), serial_, shape, a, g);
    EXPECT_EQ(product.sq_norm[0], HUGE_VALF);
    EXPECT_EQ(product.upper[0], HUGE_VALF);
    // Gram matrices overflow, with both signs.
    std::fill_n(a.data(), positions, 1e30f);
    if (positions == 2) a[1] = -1e30f;
    const Norms<float> gram(kernels(), serial_, shape, a, g);
    EXPECT_FALSE(std::isfinite(gram.sq_norm[0]));
    EXPECT_FALSE(std::isfinite(gram.upper[0]));
  }
}

TEST_P(GhostNormTest, SameBitsForAnyNumberOfThreads) {
  const DenseShape shape = {3, 2, 130, 70, 65};
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    const Array<T> a = Normals<T>(random_, Rows(shape) * shape.d);
    const Array<T> g = Normals<T>(random_, Rows(shape) * shape.p);
    const Norms<T> expected(kernels(), serial_, shape, a, g);
    for (int threads : {1, 2, 5}) {
      StripedParallel striped(threads);
      const Norms<T> norms(kernels(), striped, shape, a, g);
      for (int64_t i = 0; i < shape.batch; ++i) {
        EXPECT_EQ(norms.sq_norm[i], expected.sq_norm[i]);
        EXPECT_EQ(norms.upper[i], expected.upper[i]);
      }
    }
  });
}

}  // namespace
}  // namespace bk
