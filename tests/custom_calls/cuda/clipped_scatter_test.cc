// Clipped scatter on a device against the definition.
#include "custom_calls/cuda/clipped_scatter.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "custom_calls/reference/lookup.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/cuda/device_buffer.h"
#include "tests/custom_calls/lookup_data.h"
#include "tests/custom_calls/tolerance.h"

namespace bk::cuda {
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
  std::vector<Accumulator<T>> Sum() const {
    auto device_ids = DeviceBuffer<int32_t>::Of(ids, "ids");
    auto device_factor = DeviceBuffer<Accumulator<T>>::Of(factor, "factor");
    auto device_g = DeviceBuffer<T>::Of(g, "g");
    auto sum = DeviceBuffer<Accumulator<T>>::Of(initial, "sum");
    DeviceBuffer<char> workspace(ClippedScatterWorkspaceBytes(shape),
                                 "workspace");
    EXPECT_TRUE(Succeeded(ClippedScatter(
        shape, device_ids.data(), device_factor.data(), device_g.data(),
        sum.data(), workspace.data(), nullptr)));
    return sum.Get();
  }
  LookupShape shape;
  Array<int32_t> ids;
  Array<Accumulator<T>> factor;
  Array<T> g;
  Array<Accumulator<T>> initial;
};

class ClippedScatterTest : public DeviceTest {
 protected:
  Random random_{20221001};
};

// Empty in every dimension, around 256 keys and 128 columns; rows with more
// tokens than are in flight.
TEST_F(ClippedScatterTest, ExactOnSmallIntegers) {
  const std::vector<std::tuple<int64_t, int64_t, int64_t>> sizes = {
      {0, 5, 3},    {7, 0, 2},  {7, 5, 0},    {1, 1, 1},
      {40, 130, 9}, {90, 3, 1}, {171, 2, 50}, {20, 128, 9}};
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (const auto& [tokens, p, rows] : sizes) {
      SCOPED_TRACE(testing::Message()
                   << "T, p, rows = " << tokens << ", " << p << ", " << rows);
      const Operands<T> operands(random_, {3, tokens, p, rows});
      const auto sum = operands.Sum();
      std::vector<double> expected(operands.initial.data(),
                                   operands.initial.data() + rows * p);
      reference::ClippedScatter(operands.shape, operands.ids.data(),
                                operands.factor.data(), operands.g.data(),
                                expected.data());
      for (int64_t k = 0; k < rows * p; ++k) ASSERT_EQ(sum[k], expected[k]);
    }
  });
}

TEST_F(ClippedScatterTest, RandomWithinTheDerivedToleranceOnFewBlocks) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    Operands<T> operands(random_, {5, 63, 7, 13});
    operands.g = Normals<T>(random_, operands.g.size());
    operands.factor = Normals<Accumulator<T>>(random_, 5);
    operands.initial = Array<Accumulator<T>>(13 * 7);
    const auto sum = operands.Sum();
    device::LimitBlocks(3);
    EXPECT_EQ(operands.Sum(), sum);
    device::LimitBlocks(0);
    std::vector<double> expected(sum.size());
    std::vector<double> scale(sum.size());
    reference::ClippedScatter(operands.shape, operands.ids.data(),
                              operands.factor.data(), operands.g.data(),
                              expected.data(), scale.data());
    for (size_t k = 0; k < sum.size(); ++k) {
      ASSERT_NEAR(static_cast<double>(sum[k]), expected[k],
                  SumTolerance<T>(5 * 63, scale[k]));
    }
  });
}

TEST_F(ClippedScatterTest, FactorZeroIsNeverRead) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    Operands<T> operands(random_, {3, 20, 37, 9});
    operands.factor[0] = 1;
    operands.factor[1] = 0;
    operands.factor[2] = -1;
    const auto expected = operands.Sum();
    const T nan = reference::FromDouble<T>(std::nan(""));
    std::fill_n(&operands.g[20 * 37], 20 * 37, nan);
    EXPECT_EQ(operands.Sum(), expected);
  });
}

}  // namespace
}  // namespace bk::cuda
