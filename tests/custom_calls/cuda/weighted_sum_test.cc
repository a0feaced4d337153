// Weighted sums on a device against the definition.
#include "custom_calls/cuda/weighted_sum.h"

#include <cmath>
#include <vector>

#include "custom_calls/reference/per_sample_grad.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/cuda/device_buffer.h"
#include "tests/custom_calls/test_data.h"
#include "tests/custom_calls/tolerance.h"

namespace bk::cuda {
namespace {

template <class T>
std::vector<Accumulator<T>> Sum(const WeightedSumShape& shape,
                                const Array<Accumulator<T>>& factor,
                                const Array<T>& x) {
  auto device_factor = DeviceBuffer<Accumulator<T>>::Of(factor, "factor");
  auto device_x = DeviceBuffer<T>::Of(x, "x");
  DeviceBuffer<Accumulator<T>> sum(shape.size, "sum");
  EXPECT_TRUE(Succeeded(WeightedSum(shape, device_factor.data(),
                                    device_x.data(), sum.data(), nullptr)));
  return sum.Get();
}

class WeightedSumTest : public DeviceTest {
 protected:
  Random random_{20221001};
};

// Around a block of 256 elements and the unrolled four examples.
TEST_F(WeightedSumTest, ExactOnSmallIntegers) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (int64_t size : {0, 1, 7, 255, 256, 257, 700}) {
      for (int64_t batch : {0, 1, 3, 4, 5, 9}) {
        const WeightedSumShape shape = {batch, size};
        const auto factor = Integers<Accumulator<T>>(random_, batch, 1);
        const auto x = Integers<T>(random_, batch * size);
        const auto sum = Sum(shape, factor, x);
        std::vector<double> expected(size);
        reference::WeightedSum(shape, factor.data(), x.data(), expected.data());
        for (int64_t k = 0; k < size; ++k) ASSERT_EQ(sum[k], expected[k]);
      }
    }
  });
}

TEST_F(WeightedSumTest, RandomWithinTheDerivedTolerance) {
  const WeightedSumShape shape = {33, 100};
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    const auto factor = Normals<Accumulator<T>>(random_, shape.batch);
    const auto x = Normals<T>(random_, shape.batch * shape.size);
    const auto sum = Sum(shape, factor, x);
    std::vector<double> expected(shape.size), scale(shape.size);
    reference::WeightedSum(shape, factor.data(), x.data(), expected.data(),
                           scale.data());
    for (int64_t k = 0; k < shape.size; ++k) {
      ASSERT_NEAR(static_cast<double>(sum[k]), expected[k],
                  SumTolerance<T>(shape.batch, scale[k]));
    }
  });
}

TEST_F(WeightedSumTest, FactorZeroIsNeverRead) {
  const WeightedSumShape shape = {2, 3};
  Array<float> factor(2), x(6);
  factor[1] = 2;
  for (int k = 0; k < 3; ++k) {
    x[k] = NAN;
    x[3 + k] = static_cast<float>(k);
  }
  const auto sum = Sum(shape, factor, x);
  for (int k = 0; k < 3; ++k) EXPECT_EQ(sum[k], 2 * k);
}

}  // namespace
}  // namespace bk::cuda
