// Clipped scatter kernels of every instruction set against the definition.
#include "custom_calls/cpu/sparse/clipped_scatter.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "custom_calls/reference/lookup.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/lookup_data.h"
#include "tests/custom_calls/tolerance.h"

namespace bk {
namespace {

template <class T>
struct Operands {
  Operands(Random& random, const LookupShape& s)
      : shape(s),
        ids(Ids(random, s.batch * s.tokens, -2,
                static_cast<int32_t>(s.rows) + 1)),
        factor(Integers<Accumulator<T>>(random, s.batch, 1)),
        g(Integers<T>(random, s.batch * s.tokens * s.p)),
        initial(Integers<Accumulator<T>>(random, s.rows * s.p)) {}
  Array<Accumulator<T>> Sum(const CpuKernels& kernels,
                            Parallel& parallel) const {
    Array<Accumulator<T>> sum = initial;
    ClippedScatter(kernels, parallel, shape, ids.data(), factor.data(),
                   g.data(), sum.data());
    return sum;
  }
  LookupShape shape;
  Array<int32_t> ids;
  Array<Accumulator<T>> factor;
  Array<T> g;
  Array<Accumulator<T>> initial;
};

class ClippedScatterTest : public IsaTest {};
BK_INSTANTIATE_FOR_EACH_ISA(ClippedScatterTest);

TEST_P(ClippedScatterTest, ExactOnSmallIntegers) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (int64_t p : kLookupWidths) {
      for (int64_t tokens : {0, 1, 7, 40}) {
        for (int64_t rows : {0, 1, 9}) {
          SCOPED_TRACE(testing::Message() << "T, p, rows = " << tokens << ", "
                                          << p << ", " << rows);
          const Operands<T> operands(random_, {3, tokens, p, rows});
          const auto sum = operands.Sum(kernels(), serial_);
          std::vector<double> expected(operands.initial.data(),
                                       operands.initial.data() + rows * p);
          reference::ClippedScatter(operands.shape, operands.ids.data(),
                                    operands.factor.data(), operands.g.data(),
                                    expected.data());
          for (int64_t k = 0; k < sum.size(); ++k) {
            ASSERT_EQ(sum[k], expected[k]);
          }
        }
      }
    }
  });
}

TEST_P(ClippedScatterTest, RandomWithinTheDerivedTolerance) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    Operands<T> operands(random_, {5, 63, 70, 13});
    operands.g = Normals<T>(random_, operands.g.size());
    operands.factor = Normals<Accumulator<T>>(random_, 5);
    operands.initial = Array<Accumulator<T>>(13 * 70);
    const auto sum = operands.Sum(kernels(), serial_);
    std::vector<double> expected(sum.size());
    std::vector<double> scale(sum.size());
    reference::ClippedScatter(operands.shape, operands.ids.data(),
                              operands.factor.data(), operands.g.data(),
                              expected.data(), scale.data());
    for (int64_t k = 0; k < sum.size(); ++k) {
      ASSERT_NEAR(static_cast<double>(sum[k]), expected[k],
                  SumTolerance<T>(5 * 63, scale[k]));
    }
  });
}

TEST_P(ClippedScatterTest, FactorZeroIsNeverRead) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    Operands<T> operands(random_, {3, 20, 37, 9});
    operands.factor[0] = 1;
    operands.factor[1] = 0;
    operands.factor[2] = -1;
    const auto expected = operands.Sum(kernels(), serial_);
    const T nan = reference::FromDouble<T>(std::nan(""));
    std::fill_n(&operands.g[20 * 37], 20 * 37, nan);
    const auto sum = operands.Sum(kernels(), serial_);
    for (int64_t k = 0; k < sum.size(); ++k) ASSERT_EQ(sum[k], expected[k]);
  });
}

// One hot row, as padding makes it.
TEST_P(ClippedScatterTest, SameBitsForAnyNumberOfThreads) {
  Operands<float> operands(random_, {4, 300, 700, 50});
  operands.g = Normals<float>(random_, operands.g.size());
  operands.factor = Normals<float>(random_, 4);
  for (int64_t k = 0; k < 1200; k += 2) operands.ids[k] = 3;
  const auto expected = operands.Sum(kernels(), serial_);
  for (int threads : {1, 2, 5}) {
    StripedParallel striped(threads);
    const auto sum = operands.Sum(kernels(), striped);
    for (int64_t k = 0; k < sum.size(); ++k) ASSERT_EQ(sum[k], expected[k]);
  }
}

}  // namespace
}  // namespace bk
