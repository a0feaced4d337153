// Squared norms of many arrays, of every instruction set, against the
// definition.
#include "custom_calls/cpu/dense/squared_norms.h"

#include <cmath>
#include <limits>
#include <vector>

#include "custom_calls/reference/convert.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/test_data.h"
#include "tests/custom_calls/tolerance.h"

namespace bk {
namespace {

template <class T>
struct Norms {
  Array<Accumulator<T>> estimate;
  Array<Accumulator<T>> upper;
};

template <class T>
Norms<T> Measure(const CpuKernels& kernels, Parallel& parallel, int64_t batch,
                 const std::vector<Array<T>>& arrays) {
  const auto not_a_number = [] { return std::nan(""); };
  Norms<T> norms = {Filled<Accumulator<T>>(batch, not_a_number),
                    Filled<Accumulator<T>>(batch, not_a_number)};
  std::vector<ExampleRows<T>> rows;
  for (const Array<T>& array : arrays) {
    const auto size = static_cast<int64_t>(array.size());
    rows.push_back({array.data(), batch == 0 ? 0 : size / batch});
  }
  SquaredNorms(kernels, parallel, batch, rows, norms.estimate.data(),
               norms.upper.data());
  return norms;
}

// The squared norm of example i in long double.
template <class T>
long double Expected(int64_t batch, int64_t i,
                     const std::vector<Array<T>>& arrays) {
  long double sum = 0;
  for (const Array<T>& array : arrays) {
    const auto size = static_cast<int64_t>(array.size()) / batch;
    for (int64_t k = 0; k < size; ++k) {
      const long double x = reference::ToDouble(array[i * size + k]);
      sum += x * x;
    }
  }
  return sum;
}

class SquaredNormsTest : public IsaTest {};
BK_INSTANTIATE_FOR_EACH_ISA(SquaredNormsTest);

// Around vectors and the piece of 16384 elements.
TEST_P(SquaredNormsTest, ExactOnSmallIntegers) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (int64_t batch : {0, 1, 2, 5}) {
      std::vector<Array<T>> arrays;
      for (int64_t size : {0, 1, 3, 8, 17, 64, 1000, 16383, 16384, 16385}) {
        arrays.push_back(Integers<T>(random_, batch * size));
      }
      const auto norms = Measure(kernels(), serial_, batch, arrays);
      for (int64_t i = 0; i < batch; ++i) {
        const auto expected =
            static_cast<double>(Expected<T>(batch, i, arrays));
        ASSERT_EQ(static_cast<double>(norms.estimate[i]), expected);
        ASSERT_GE(static_cast<double>(norms.upper[i]), expected);
        ASSERT_LE(static_cast<double>(norms.upper[i]), 1.000001 * expected);
      }
    }
  });
}

TEST_P(SquaredNormsTest, TheBoundIsNeverBelowTheTruth) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    const std::vector<Array<T>> arrays = {
        Normals<T>(random_, int64_t{3} * 333),
        Normals<T>(random_, int64_t{3} * 20000)};
    const auto norms = Measure(kernels(), serial_, 3, arrays);
    for (int64_t i = 0; i < 3; ++i) {
      const long double expected = Expected<T>(3, i, arrays);
      ASSERT_GE(static_cast<long double>(norms.upper[i]), expected);
      ASSERT_LE(static_cast<long double>(norms.upper[i]), expected * 1.000001L);
    }
  });
}

// Squares of all of them vanish in the type of the results.
TEST_P(SquaredNormsTest, WhatUnderflowsStaysVisible) {
  const auto tiny = std::numeric_limits<float>::denorm_min();
  const std::vector<Array<float>> arrays = {
      Filled<float>(2, [] { return 0.0F; }),
      Filled<float>(int64_t{2} * 5,
                    [&, k = 0]() mutable { return k++ < 5 ? tiny : 0; })};
  const auto norms = Measure(kernels(), serial_, 2, arrays);
  EXPECT_GT(norms.upper[0], 0);
  EXPECT_EQ(norms.upper[1], 0);
  const std::vector<Array<double>> doubles = {
      Filled<double>(2, [k = 0]() mutable { return k++ == 0 ? 1e-300 : 0; })};
  const auto wide = Measure(kernels(), serial_, 2, doubles);
  EXPECT_GT(wide.upper[0], 0);
  EXPECT_EQ(wide.upper[1], 0);
}

TEST_P(SquaredNormsTest, ABadExampleIsAlone) {
  for (float bad : {NAN, HUGE_VALF}) {
    std::vector<Array<float>> arrays = {
        Normals<float>(random_, int64_t{3} * 7),
        Normals<float>(random_, int64_t{3} * 40)};
    const auto clean = Measure(kernels(), serial_, 3, arrays);
    arrays[1][40 + 5] = bad;
    const auto norms = Measure(kernels(), serial_, 3, arrays);
    EXPECT_FALSE(std::isfinite(norms.estimate[1]));
    EXPECT_FALSE(std::isfinite(norms.upper[1]));
    for (int64_t i : {0, 2}) {
      EXPECT_EQ(norms.estimate[i], clean.estimate[i]);
      EXPECT_EQ(norms.upper[i], clean.upper[i]);
    }
  }
}

TEST_P(SquaredNormsTest, SameBitsForAnyNumberOfThreads) {
  const std::vector<Array<float>> arrays = {
      Normals<float>(random_, int64_t{5} * 40000),
      Normals<float>(random_, int64_t{5} * 100)};
  const auto expected = Measure(kernels(), serial_, 5, arrays);
  for (int threads : {1, 2, 5}) {
    StripedParallel striped(threads);
    const auto norms = Measure(kernels(), striped, 5, arrays);
    for (int64_t i = 0; i < 5; ++i) {
      ASSERT_EQ(norms.estimate[i], expected.estimate[i]);
      ASSERT_EQ(norms.upper[i], expected.upper[i]);
    }
  }
}

}  // namespace
}  // namespace bk
