// Layers of one shape in one launch: the same as one after the other, added up,
// and bit for bit the same as one array with as many weights.
#include <cfloat>
#include <cmath>
#include <vector>

#include "custom_calls/reference/clipped_gemm.h"
#include "custom_calls/reference/ghost_norm.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/cuda/dense_calls.h"
#include "tests/custom_calls/cuda/layer_calls.h"
#include "tests/custom_calls/cuda/tile_sides.h"
#include "tests/custom_calls/norm_cases.h"
#include "tests/custom_calls/tolerance.h"

namespace bk::cuda {
namespace {

class LayersTest : public TileSidesTest {
 protected:
  // Small integers: single calls are exact (dense_test.cc), and so is their
  // sum.
  template <class T>
  void ExpectNormsAddUp(int64_t layers, const DenseShape& shape) {
    SCOPED_TRACE(testing::Message()
                 << layers << " layers, B, N, T, d, p = " << shape.batch << ", "
                 << shape.weights << ", " << shape.positions << ", " << shape.d
                 << ", " << shape.p);
    const LayerArrays<T> arrays = IntegerLayers<T>(random_, layers, shape);
    std::vector<double> expected(shape.batch);
    for (int64_t l = 0; l < layers; ++l) {
      std::vector<double> one(shape.batch);
      reference::GhostNorm(shape, arrays.left[l].data(), arrays.right[l].data(),
                           one.data());
      for (int64_t i = 0; i < shape.batch; ++i) expected[i] += one[i];
    }
    const Norms<T> norms = NormsOfLayers(shape, arrays);
    for (int64_t i = 0; i < shape.batch; ++i) {
      ASSERT_EQ(norms.sq_norm[i], static_cast<Accumulator<T>>(expected[i]));
      ASSERT_GE(norms.upper[i], expected[i]);
      ASSERT_LE(norms.upper[i], 1.0405 * expected[i] + FLT_MIN);
    }
  }

  template <class T>
  void ExpectSumsOfEach(int64_t layers, const ClippedGemmShape& shape,
                        int64_t skipped = 0) {
    SCOPED_TRACE(testing::Message()
                 << layers << " layers, B, N, T, m, n = " << shape.batch << ", "
                 << shape.weights << ", " << shape.positions << ", " << shape.m
                 << ", " << shape.n);
    const LayerArrays<T> arrays = IntegerLayers<T>(
        random_, layers,
        {shape.batch, shape.weights, shape.positions, shape.m, shape.n});
    const auto factor = Integers<Accumulator<T>>(random_, shape.batch, 1);
    std::vector<Accumulator<T>> expected, sum_and_100;
    for (int64_t l = 0; l < layers; ++l) {
      std::vector<double> one(shape.weights * shape.m * shape.n);
      reference::ClippedGemm(shape, arrays.left[l].data(), factor.data(),
                             arrays.right[l].data(), one.data());
      for (double x : one) {
        expected.push_back(static_cast<Accumulator<T>>(x));
        sum_and_100.push_back(static_cast<Accumulator<T>>(x + 100));
      }
    }
    ASSERT_EQ(SumsOfLayers(shape, arrays, factor, false, skipped), expected);
    if (layers != 2) return;
    ASSERT_EQ(SumsOfLayers(shape, arrays, factor, true, skipped), sum_and_100);
  }

  Random random_{20221001};
};

TEST_F(LayersTest, NormsAddUp) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (int64_t layers : {1, 2, 5}) {
      ExpectNormsAddUp<T>(layers, {2, 1, 5, 16, 8});
      ExpectNormsAddUp<T>(layers, {3, 2, 1, 7, 17});
    }
    ExpectNormsAddUp<T>(2, {2, 2, 65, 33, 9});
    ExpectNormsAddUp<T>(2, {1, 1, 130, 8, 3});
    for (const DenseShape& empty : {DenseShape{0, 1, 3, 4, 5},
                                    {2, 0, 3, 4, 5},
                                    {2, 1, 0, 4, 5},
                                    {2, 1, 3, 0, 5}}) {
      ExpectNormsAddUp<T>(3, empty);
    }
  });
}

TEST_F(LayersTest, SumsAreThoseOfEachLayer) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (int64_t layers : {1, 2, 5}) {
      ExpectSumsOfEach<T>(layers, {3, 2, 5, 9, 7});
      ExpectSumsOfEach<T>(layers, {2, 1, 40, 16, 8});
    }
    ExpectSumsOfEach<T>(2, {9, 1, 33, 16, 24});  // shares of the rows
    ExpectSumsOfEach<T>(2, {260, 1, 1, 5, 3});
    for (const ClippedGemmShape& empty : {ClippedGemmShape{0, 1, 3, 4, 5},
                                          {2, 0, 3, 4, 5},
                                          {2, 1, 0, 4, 5},
                                          {2, 1, 3, 0, 5}}) {
      ExpectSumsOfEach<T>(3, empty);
    }
  });
}

// Around the sides of tiles; rows that are aligned and rows that are not.
TEST_F(LayersTest, TilesOfBothSizes) {
  for (bool large : {false, true}) {
    SCOPED_TRACE(large);
    UseLargeTiles(large);
    ExpectNormsAddUp<BFloat16>(2, {1, 1, 129, 24, 72});
    ExpectNormsAddUp<BFloat16>(3, {1, 1, 128, 65, 3});
    ExpectNormsAddUp<Float16>(2, {2, 1, 64, 128, 7});
    ExpectNormsAddUp<Float16>(2, {1, 2, 65, 24, 72});
    ExpectSumsOfEach<BFloat16>(2, {3, 1, 64, 128, 65});
    ExpectSumsOfEach<BFloat16>(2, {2, 1, 65, 136, 72});
    ExpectSumsOfEach<Float16>(2, {2, 2, 24, 72, 80});
  }
}

TEST_F(LayersTest, FewBlocksDoAllItems) {
  device::LimitBlocks(2);
  ExpectNormsAddUp<BFloat16>(3, {2, 1, 70, 9, 66});
  ExpectNormsAddUp<float>(3, {2, 1, 9, 9, 66});
  ExpectSumsOfEach<BFloat16>(3, {9, 1, 33, 9, 66});
}

// Layers are cut into tiles and shares as weights of one array are.
TEST_F(LayersTest, TheBitsAreThoseOfWeights) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    const DenseShape shape = {3, 1, 90, 35, 24}, together = {3, 3, 90, 35, 24};
    LayerArrays<T> arrays;
    for (int l = 0; l < 3; ++l) {
      arrays.Add(Normals<T>(random_, Rows(shape) * shape.d),
                 Normals<T>(random_, Rows(shape) * shape.p));
    }
    const Array<T> a = AsWeights(arrays.left, shape.batch);
    const Array<T> g = AsWeights(arrays.right, shape.batch);
    const Norms<T> norms = NormsOfLayers(shape, arrays);
    const Norms<T> expected = NormsOf(Kind::kGhost, together, a, g);
    EXPECT_EQ(norms.sq_norm, expected.sq_norm);
    EXPECT_EQ(norms.upper, expected.upper);
    const auto factor = Normals<Accumulator<T>>(random_, shape.batch);
    EXPECT_EQ(
        SumsOfLayers({3, 1, 90, 35, 24}, arrays, factor, false),
        SumOf<T>(ClippedGemmShape{3, 3, 90, 35, 24}, a, factor, g, false));
  });
}

// One pointer that is not at a multiple of 16 bytes.
TEST_F(LayersTest, AlignmentMayDiffer) {
  for (int64_t skipped : {1, 8}) {
    const DenseShape shape = {2, 1, 70, 24, 72};
    const auto arrays = IntegerLayers<BFloat16>(random_, 2, shape);
    EXPECT_EQ(NormsOfLayers(shape, arrays, skipped).sq_norm,
              NormsOfLayers(shape, arrays).sq_norm);
    ExpectSumsOfEach<BFloat16>(2, {2, 1, 70, 24, 72}, skipped);
    ExpectSumsOfEach<float>(2, {2, 1, 3, 24, 72}, skipped);
  }
}

TEST_F(LayersTest, NotANumberStaysWithItsExample) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    const DenseShape shape = {3, 1, 70, 24, 7};
    LayerArrays<T> arrays = IntegerLayers<T>(random_, 3, shape);
    const Norms<T> clean = NormsOfLayers(shape, arrays);
    for (int64_t k = 0; k < 70 * shape.p; ++k) {
      arrays.right[1][70 * shape.p + k] = reference::FromDouble<T>(NAN);
    }
    const Norms<T> norms = NormsOfLayers(shape, arrays);
    for (int i : {0, 2}) {
      EXPECT_EQ(norms.sq_norm[i], clean.sq_norm[i]);
      EXPECT_EQ(norms.upper[i], clean.upper[i]);
    }
    EXPECT_TRUE(std::isnan(norms.sq_norm[1]));
    EXPECT_TRUE(std::isnan(norms.upper[1]));
    Array<Accumulator<T>> factor(3);
    factor[0] = factor[2] = 1;
    for (Accumulator<T> x :
         SumsOfLayers({3, 1, 70, 24, 7}, arrays, factor, false)) {
      ASSERT_TRUE(std::isfinite(x));
    }
  });
}

// Where gradients of all layers cancel the bound of the sum is loose, and they
// are formed.
TEST_F(LayersTest, LooseExamplesAreComputedAgain) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (double noise : {1e-2, 1e-4, 0.0}) {
      SCOPED_TRACE(noise);
      LayerArrays<T> arrays;
      long double exact = 0;
      double scale = 0;
      DenseShape shape = {};
      for (int l = 0; l < 3; ++l) {
        const auto c = Cancelling<T>(random_, 40, 24, 20, 1, noise);
        shape = c.shape();
        long double own = 0;
        double own_scale = 0;
        reference::GhostNorm(shape, c.a.data(), c.g.data(), &own);
        reference::GhostNormScale(shape, c.a.data(), c.g.data(), &own_scale);
        exact += own;
        scale += own_scale;
        arrays.Add(c.a, c.g);
      }
      for (int direction : {0, -1, 1}) {
        if (!device::SetTensorCoreError(direction) && direction != 0) continue;
        const Norms<T> norms = NormsOfLayers(shape, arrays);
        EXPECT_GE(static_cast<long double>(norms.upper[0]), exact);
        EXPECT_GE(norms.upper[0], norms.sq_norm[0]);
        const double slack = 400 * UnitRoundoff<T>() * std::sqrt(scale);
        EXPECT_LE(
            std::sqrt(static_cast<double>(norms.upper[0])),
            1.021 * std::sqrt(static_cast<double>(exact)) + slack + 1e-15);
      }
    }
  });
}

// However many layers there are, and also without examples.
TEST_F(LayersTest, LaunchesDoNotGrow) {
  if (!device::Launches().has_value()) {
    GTEST_SKIP() << "nobody counts the launches of a GPU";
  }
  for (int64_t batch : {0, 2}) {
    const auto factor = Integers<float>(random_, batch, 1);
    std::vector<int64_t> launches;
    for (int64_t layers : {1, 5}) {
      const int64_t before = *device::Launches();
      const DenseShape shape = {batch, 1, 30, 4, 5};
      const auto arrays = IntegerLayers<BFloat16>(random_, layers, shape);
      NormsOfLayers(shape, arrays);
      SumsOfLayers({batch, 1, 30, 4, 5}, arrays, factor, false);
      launches.push_back(*device::Launches() - before);
    }
    EXPECT_GT(launches[0], 1);
    EXPECT_EQ(launches[0], launches[1]);
  }
}

TEST_F(LayersTest, AsManyAsThereIsRoomFor) {
  ExpectNormsAddUp<BFloat16>(kMaxLayers, {1, 1, 2, 3, 5});
  ExpectSumsOfEach<BFloat16>(kMaxLayers, {1, 1, 24, 3, 5});
}

}  // namespace
}  // namespace bk::cuda
