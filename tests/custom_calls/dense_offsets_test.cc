// Dense kernels on arrays of more than 2^32 elements: what is computed at their
// far end equals what is computed from the same numbers alone.
#include <algorithm>

#include "custom_calls/cpu/dense/clipped_gemm.h"
#include "custom_calls/cpu/dense/direct_norm.h"
#include "custom_calls/cpu/dense/ghost_norm.h"
#include "custom_calls/cpu/dense/per_sample_grad.h"
#include "custom_calls/cpu/dense/weighted_sum.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/far_memory.h"

namespace bk {
namespace {

class DenseOffsetsTest : public IsaTest {
 protected:
  FarItems last_item_;
};
BK_INSTANTIATE_FOR_EACH_ISA_AND_SOFT_TILES(DenseOffsetsTest);

// One tile, so that the last item of a loop is the whole last example.
constexpr int64_t kNarrow = 40;
constexpr int64_t kFar = int64_t{1} << 32;

// So many examples of `elements` each that the last one begins beyond kFar.
int64_t FarBatch(int64_t elements) { return kFar / elements + 2; }

TEST_P(DenseOffsetsTest, GhostNormOfTheLastExample) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    using Acc = Accumulator<T>;
    const int64_t wide = 1 << 16;
    const DenseShape alone = {1, 1, 3, wide, wide};
    DenseShape shape = alone;
    shape.batch = FarBatch(3 * wide);
    const auto a = Integers<T>(random_, 3 * wide);
    const auto g = Integers<T>(random_, 3 * wide);
    FarArray<T> far_a(shape.batch * 3 * wide), far_g(shape.batch * 3 * wide);
    far_a.PutLast(a);
    far_g.PutLast(g);
    Array<Acc> norm(shape.batch), upper(shape.batch);
    GhostNorm(kernels(), last_item_, shape, far_a.data(), far_g.data(),
              norm.data(), upper.data());
    Acc expected = 0, expected_upper = 0;
    GhostNorm(kernels(), serial_, alone, a.data(), g.data(), &expected,
              &expected_upper);
    ASSERT_GT(expected, 0);
    ASSERT_EQ(norm[shape.batch - 1], expected);
  });
}

// Two positions cancel but for one number, so the bound of the ghost norm is
// loose and the direct norm of that example is taken: d * 1.
TEST_P(DenseOffsetsTest, GhostNormRecomputesTheLastExample) {
  const int64_t positions = 1000, size = positions * kNarrow;
  const DenseShape shape = {FarBatch(size), 1, positions, kNarrow, kNarrow};
  FarArray<float> a(shape.batch * size), g(shape.batch * size);
  std::fill_n(a.Last(2 * kNarrow), 2 * kNarrow, 1.0F);
  std::fill_n(g.Last(2 * kNarrow), kNarrow, 2000.0F);
  std::fill_n(g.Last(kNarrow), kNarrow, -2000.0F);
  *g.Last(1) = -2001.0F;
  Array<float> norm(shape.batch), upper(shape.batch);
  GhostNorm(kernels(), last_item_, shape, a.data(), g.data(), norm.data(),
            upper.data());
  EXPECT_EQ(norm[shape.batch - 1], kNarrow);
  // A ghost norm that is not recomputed has a bound above 10000.
  EXPECT_LT(upper[shape.batch - 1], 3 * kNarrow);
}

// Shorter and longer than one block of the reduction.
TEST_P(DenseOffsetsTest, DirectNormOfTheLastExample) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    using Acc = Accumulator<T>;
    for (int64_t positions : {300, 4096}) {
      const int64_t size = positions * kNarrow;
      const DenseShape alone = {1, 1, positions, kNarrow, kNarrow};
      DenseShape shape = alone;
      shape.batch = FarBatch(size);
      const auto a = Integers<T>(random_, size);
      const auto g = Integers<T>(random_, size);
      FarArray<T> far_a(shape.batch * size), far_g(shape.batch * size);
      far_a.PutLast(a);
      far_g.PutLast(g);
      Array<Acc> norm(shape.batch), upper(shape.batch);
      DirectNorm(kernels(), last_item_, shape, far_a.data(), far_g.data(),
                 norm.data(), upper.data());
      Acc expected = 0, expected_upper = 0;
      DirectNorm(kernels(), serial_, alone, a.data(), g.data(), &expected,
                 &expected_upper);
      ASSERT_GT(expected, 0);
      ASSERT_EQ(norm[shape.batch - 1], expected);
      ASSERT_EQ(upper[shape.batch - 1], expected_upper);
    }
  });
}

// Gradients of two examples with more than 2^31 entries each.
TEST_P(DenseOffsetsTest, PerSampleGradOfTheLastTile) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    using Acc = Accumulator<T>;
    const int64_t wide = 46560;
    const DenseShape shape = {2, 1, 1, wide, wide};
    const auto ends = Integers<T>(random_, kNarrow);
    Array<T> a(2 * wide), g(2 * wide);
    a[0] = g[0] = reference::FromDouble<T>(1);  // a norm that is not zero
    std::copy_n(ends.data(), kNarrow, &a[2 * wide - kNarrow]);
    std::copy_n(ends.data(), kNarrow, &g[2 * wide - kNarrow]);
    FarArray<Acc> grad(2 * wide * wide);
    Array<Acc> norm(2), upper(2);
    FarItems first_and_last(1, 1);
    PerSampleGrad(kernels(), first_and_last, shape, a.data(), g.data(),
                  grad.data(), norm.data(), upper.data());
    double squares = 0;
    for (int64_t i = 0; i < kNarrow; ++i) {
      for (int64_t j = 0; j < kNarrow; ++j) {
        const double entry =
            reference::ToDouble(ends[i]) * reference::ToDouble(ends[j]);
        ASSERT_EQ(*grad.Last((kNarrow - i) * wide - (wide - kNarrow) - j),
                  entry);
        squares += entry * entry;
      }
    }
    ASSERT_EQ(norm[0], 1);
    ASSERT_EQ(norm[1], squares);
  });
}

TEST_P(DenseOffsetsTest, ClippedGemmReadsTheLastExample) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    using Acc = Accumulator<T>;
    const int64_t positions = 500, size = positions * kNarrow;
    const ClippedGemmShape alone = {1, 1, positions, kNarrow, kNarrow};
    ClippedGemmShape shape = alone;
    shape.batch = FarBatch(size);
    const auto lhs = Integers<T>(random_, size);
    const auto rhs = Integers<T>(random_, size);
    FarArray<T> far_lhs(shape.batch * size), far_rhs(shape.batch * size);
    far_lhs.PutLast(lhs);
    far_rhs.PutLast(rhs);
    Array<Acc> factor(shape.batch);
    factor[shape.batch - 1] = 3;
    Array<Acc> sum(kNarrow * kNarrow), expected(kNarrow * kNarrow);
    ClippedGemm(kernels(), last_item_, shape, far_lhs.data(), factor.data(),
                far_rhs.data(), sum.data());
    ClippedGemm(kernels(), serial_, alone, lhs.data(), &factor[shape.batch - 1],
                rhs.data(), expected.data());
    for (int64_t k = 0; k < sum.size(); ++k) ASSERT_EQ(sum[k], expected[k]);
  });
}

// Four weights with more than 2^30 entries each.
TEST_P(DenseOffsetsTest, ClippedGemmWritesTheLastTile) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    using Acc = Accumulator<T>;
    const int64_t wide = 40000;
    const ClippedGemmShape shape = {1, 4, 1, wide, wide};
    const auto lhs = Integers<T>(random_, 4 * wide);
    const auto rhs = Integers<T>(random_, 4 * wide);
    const Acc factor = 3;
    FarArray<Acc> sum(4 * wide * wide);
    ClippedGemm(kernels(), last_item_, shape, lhs.data(), &factor, rhs.data(),
                sum.data());
    for (int64_t i = 1; i <= kNarrow; ++i) {
      for (int64_t j = 1; j <= kNarrow; ++j) {
        ASSERT_EQ(*sum.Last((i - 1) * wide + j),
                  3 * reference::ToDouble(lhs[4 * wide - i]) *
                      reference::ToDouble(rhs[4 * wide - j]));
      }
    }
  });
}

TEST_P(DenseOffsetsTest, WeightedSumOfTheLastElements) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    using Acc = Accumulator<T>;
    const WeightedSumShape shape = {2, kFar + 5};
    FarArray<T> x(2 * shape.size);
    const auto second = Integers<T>(random_, 50);
    x.PutLast(second);
    Array<Acc> factor(2);
    factor[0] = 1;
    factor[1] = 3;
    FarArray<Acc> sum(shape.size);
    WeightedSum(kernels(), last_item_, shape, factor.data(), x.data(),
                sum.data());
    // The last chunk has five elements.
    for (int64_t k = 1; k <= 5; ++k) {
      ASSERT_EQ(*sum.Last(k), 3 * reference::ToDouble(second[50 - k]));
    }
  });
}

}  // namespace
}  // namespace bk
