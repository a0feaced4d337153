// Clipped gemm kernels of every instruction set against the definition.
#include "custom_calls/cpu/dense/clipped_gemm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "custom_calls/reference/clipped_gemm.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/test_data.h"
#include "tests/custom_calls/tolerance.h"

namespace bk {
namespace {

int64_t Rows(const ClippedGemmShape& shape) {
  return shape.batch * shape.weights * shape.positions;
}

template <class T>
struct Operands {
  Operands(Random& random, const ClippedGemmShape& shape)
      : lhs(Integers<T>(random, Rows(shape) * shape.m)),
        factor(Integers<Accumulator<T>>(random, shape.batch, 1)),
        rhs(Integers<T>(random, Rows(shape) * shape.n)) {}
  Array<T> lhs;
  Array<Accumulator<T>> factor;
  Array<T> rhs;
};

// Starts as NaN, so that an entry which nobody writes is noticed.
template <class T>
Array<Accumulator<T>> Sum(const CpuKernels& kernels, Parallel& parallel,
                          const ClippedGemmShape& shape,
                          const Operands<T>& operands) {
  auto sum = Filled<Accumulator<T>>(shape.weights * shape.m * shape.n,
                                    [] { return std::nan(""); });
  ClippedGemm(kernels, parallel, shape, operands.lhs.data(),
              operands.factor.data(), operands.rhs.data(), sum.data());
  return sum;
}

template <class T>
void ExpectExact(const CpuKernels& kernels, const ClippedGemmShape& shape,
                 const Operands<T>& operands) {
  SCOPED_TRACE(testing::Message() << "B, N, T, m, n = " << shape.batch << ", "
                                  << shape.weights << ", " << shape.positions
                                  << ", " << shape.m << ", " << shape.n);
  SerialParallel serial;
  const auto sum = Sum(kernels, serial, shape, operands);
  std::vector<double> expected(sum.size());
  reference::ClippedGemm(shape, operands.lhs.data(), operands.factor.data(),
                         operands.rhs.data(), expected.data());
  for (int64_t k = 0; k < sum.size(); ++k) ASSERT_EQ(sum[k], expected[k]);
}

class ClippedGemmTest : public IsaTest {};
BK_INSTANTIATE_FOR_EACH_ISA_AND_SOFT_TILES(ClippedGemmTest);

// Around micro-tiles (6 or 8 rows; 4 to 48 columns), and empty ones.
TEST_P(ClippedGemmTest, ExactOnSmallIntegers) {
  const int64_t rows[] = {0, 1, 5, 6, 7, 8, 9, 17};
  const int64_t columns[] = {0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 47, 48, 49};
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (int64_t m : rows) {
      for (int64_t n : columns) {
        for (int64_t positions : {0, 1, 5}) {
          const ClippedGemmShape shape = {4, 2, positions, m, n};
          ExpectExact(kernels(), shape, Operands<T>(random_, shape));
        }
      }
    }
  });
}

// More than one tile of the result, and blocks of the reduction that begin and
// end inside an example.
TEST_P(ClippedGemmTest, ExactAcrossTilesAndBlocks) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (const ClippedGemmShape& shape :
         {ClippedGemmShape{7, 1, 100, 100, 9},
          ClippedGemmShape{300, 1, 1, 7, 200},
          ClippedGemmShape{2, 3, 3, 97, 193},
          ClippedGemmShape{3, 1, 110, 30, 391},
          ClippedGemmShape{2, 1, 3, 9, 800}, ClippedGemmShape{0, 2, 3, 4, 5},
          ClippedGemmShape{3, 0, 3, 4, 5}}) {
      ExpectExact(kernels(), shape, Operands<T>(random_, shape));
    }
  });
}

TEST_P(ClippedGemmTest, RandomWithinTheDerivedTolerance) {
  const ClippedGemmShape shape = {5, 2, 63, 50, 70};
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    Operands<T> operands(random_, shape);
    operands.lhs = Normals<T>(random_, operands.lhs.size());
    operands.rhs = Normals<T>(random_, operands.rhs.size());
    operands.factor = Normals<Accumulator<T>>(random_, shape.batch);
    const auto sum = Sum(kernels(), serial_, shape, operands);
    std::vector<double> expected(sum.size());
    std::vector<double> scale(sum.size());
    reference::ClippedGemm(shape, operands.lhs.data(), operands.factor.data(),
                           operands.rhs.data(), expected.data(), scale.data());
    const int64_t terms = shape.batch * shape.positions;
    for (int64_t k = 0; k < sum.size(); ++k) {
      ASSERT_NEAR(static_cast<double>(sum[k]), expected[k],
                  SumTolerance<T>(terms, scale[k]));
    }
  });
}

// Every f16 and bf16 bit pattern goes through the vector conversion once.
TEST_P(ClippedGemmTest, ConvertsEverySixteenBitValue) {
  const auto check = [&](auto element) {
    using T = decltype(element);
    const int64_t count = 0x10000;
    const ClippedGemmShape shape = {1, 1, 1, count, 1};
    Operands<T> operands(random_, shape);
    for (int64_t k = 0; k < count; ++k) {
      operands.lhs[k].bits = static_cast<uint16_t>(k);
    }
    operands.factor[0] = 1;
    operands.rhs[0] = reference::FromDouble<T>(1);
    const auto sum = Sum(kernels(), serial_, shape, operands);
    for (int64_t k = 0; k < count; ++k) {
      const double expected = reference::ToDouble(operands.lhs[k]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(sum[k])) << std::hex << k;
      } else {
        ASSERT_EQ(sum[k], expected) << std::hex << k;
      }
    }
  };
  check(BFloat16());
  check(Float16());
}

TEST_P(ClippedGemmTest, FactorZeroIsNeverRead) {
  const ClippedGemmShape shape = {3, 2, 4, 9, 17};
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    Operands<T> operands(random_, shape);
    operands.factor[0] = 1;
    operands.factor[1] = 0;
    operands.factor[2] = -1;
    const auto expected = Sum(kernels(), serial_, shape, operands);
    const int64_t rows = shape.weights * shape.positions;
    const T nan = reference::FromDouble<T>(std::nan(""));
    std::fill_n(&operands.lhs[rows * shape.m], rows * shape.m, nan);
    std::fill_n(&operands.rhs[rows * shape.n], rows * shape.n, nan);
    const auto sum = Sum(kernels(), serial_, shape, operands);
    for (int64_t k = 0; k < sum.size(); ++k) ASSERT_EQ(sum[k], expected[k]);
  });
}

// Adds to what is there, also when there is nothing to add.
TEST_P(ClippedGemmTest, Accumulates) {
  const ClippedGemmShape shape = {4, 2, 150, 50, 70};
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    Operands<T> operands(random_, shape);
    const auto sum = Sum(kernels(), serial_, shape, operands);
    const auto initial = Integers<Accumulator<T>>(random_, sum.size());
    auto total = initial;
    for (int repeat : {1, 2}) {
      ClippedGemm(kernels(), serial_, shape, operands.lhs.data(),
                  operands.factor.data(), operands.rhs.data(), total.data(),
                  GemmOutput::kAccumulate);
      for (int64_t k = 0; k < sum.size(); ++k) {
        ASSERT_EQ(total[k], initial[k] + repeat * sum[k]);
      }
    }
    std::fill_n(operands.factor.data(), shape.batch, Accumulator<T>{0});
    const auto before = total;
    ClippedGemm(kernels(), serial_, shape, operands.lhs.data(),
                operands.factor.data(), operands.rhs.data(), total.data(),
                GemmOutput::kAccumulate);
    for (int64_t k = 0; k < sum.size(); ++k) ASSERT_EQ(total[k], before[k]);
  });
}

TEST_P(ClippedGemmTest, SameBitsForAnyNumberOfThreads) {
  const ClippedGemmShape shape = {3, 2, 100, 200, 400};
  Operands<float> operands(random_, shape);
  operands.lhs = Normals<float>(random_, operands.lhs.size());
  operands.rhs = Normals<float>(random_, operands.rhs.size());
  operands.factor = Normals<float>(random_, shape.batch);
  const auto expected = Sum(kernels(), serial_, shape, operands);
  for (int threads : {1, 2, 5}) {
    StripedParallel striped(threads);
    const auto sum = Sum(kernels(), striped, shape, operands);
    for (int64_t k = 0; k < sum.size(); ++k) ASSERT_EQ(sum[k], expected[k]);
  }
}

}  // namespace
}  // namespace bk
