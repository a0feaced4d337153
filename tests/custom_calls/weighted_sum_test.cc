// Weighted sums of every instruction set against the definition.
#include "custom_calls/cpu/dense/weighted_sum.h"

#include <cmath>
#include <vector>

#include "custom_calls/reference/per_sample_grad.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/test_data.h"
#include "tests/custom_calls/tolerance.h"

namespace bk {
namespace {

template <class T>
Array<Accumulator<T>> Sum(const CpuKernels& kernels, Parallel& parallel,
                          const WeightedSumShape& shape,
                          const Array<Accumulator<T>>& factor,
                          const Array<T>& x) {
  auto sum = Filled<Accumulator<T>>(shape.size, [] { return std::nan(""); });
  WeightedSum(kernels, parallel, shape, factor.data(), x.data(), sum.data());
  return sum;
}

class WeightedSumTest : public IsaTest {};
BK_INSTANTIATE_FOR_EACH_ISA(WeightedSumTest);

// Around vectors and the chunk of 2048 elements.
TEST_P(WeightedSumTest, ExactOnSmallIntegers) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (int64_t size : {0, 1, 3, 4, 7, 8, 9, 17, 2047, 2048, 2049, 5000}) {
      for (int64_t batch : {0, 1, 2, 9}) {
        const WeightedSumShape shape = {batch, size};
        const auto factor = Integers<Accumulator<T>>(random_, batch, 1);
        const auto x = Integers<T>(random_, batch * size);
        const auto sum = Sum(kernels(), serial_, shape, factor, x);
        std::vector<double> expected(size);
        reference::WeightedSum(shape, factor.data(), x.data(), expected.data());
        for (int64_t k = 0; k < size; ++k) ASSERT_EQ(sum[k], expected[k]);
      }
    }
  });
}

TEST_P(WeightedSumTest, RandomWithinTheDerivedTolerance) {
  const WeightedSumShape shape = {33, 100};
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    const auto factor = Normals<Accumulator<T>>(random_, shape.batch);
    const auto x = Normals<T>(random_, shape.batch * shape.size);
    const auto sum = Sum(kernels(), serial_, shape, factor, x);
    std::vector<double> expected(shape.size), scale(shape.size);
    reference::WeightedSum(shape, factor.data(), x.data(), expected.data(),
                           scale.data());
    for (int64_t k = 0; k < shape.size; ++k) {
      ASSERT_NEAR(static_cast<double>(sum[k]), expected[k],
                  SumTolerance<T>(shape.batch, scale[k]));
    }
  });
}

// Many arrays in one call have the bits of a call for each.
TEST_P(WeightedSumTest, ManyArraysAreLikeOneByOne) {
  const int64_t batch = 6;
  const auto factor = Normals<float>(random_, batch);
  std::vector<Array<float>> xs, sums;
  std::vector<SumArray<float>> arrays;
  for (int64_t size : {5, 0, 2049, 1, 4096}) {
    xs.push_back(Normals<float>(random_, batch * size));
    sums.push_back(Filled<float>(size, [] { return NAN; }));
  }
  for (size_t k = 0; k < xs.size(); ++k) {
    const auto size = static_cast<int64_t>(sums[k].size());
    arrays.push_back({xs[k].data(), size, sums[k].data()});
  }
  StripedParallel striped(3);
  WeightedSums(kernels(), striped, batch, factor.data(), arrays);
  for (size_t k = 0; k < xs.size(); ++k) {
    const auto expected =
        Sum(kernels(), serial_, {batch, arrays[k].size}, factor, xs[k]);
    for (int64_t i = 0; i < arrays[k].size; ++i) {
      ASSERT_EQ(sums[k][i], expected[i]);
    }
  }
}

TEST_P(WeightedSumTest, FactorZeroIsNeverRead) {
  const WeightedSumShape shape = {3, 19};
  auto factor = Normals<float>(random_, 3);
  auto x = Normals<float>(random_, int64_t{3} * 19);
  factor[0] = 0;
  const auto expected = Sum(kernels(), serial_, shape, factor, x);
  for (int64_t k = 0; k < 19; ++k) x[k] = k % 2 == 0 ? NAN : HUGE_VALF;
  const auto sum = Sum(kernels(), serial_, shape, factor, x);
  for (int64_t k = 0; k < 19; ++k) ASSERT_EQ(sum[k], expected[k]);
}

TEST_P(WeightedSumTest, SameBitsForAnyNumberOfThreads) {
  const WeightedSumShape shape = {5, 9000};
  const auto factor = Normals<float>(random_, shape.batch);
  const auto x = Normals<float>(random_, shape.batch * shape.size);
  const auto expected = Sum(kernels(), serial_, shape, factor, x);
  for (int threads : {1, 2, 5}) {
    StripedParallel striped(threads);
    const auto sum = Sum(kernels(), striped, shape, factor, x);
    for (int64_t k = 0; k < shape.size; ++k) ASSERT_EQ(sum[k], expected[k]);
  }
}

}  // namespace
}  // namespace bk
