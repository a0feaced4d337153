// Gradients of convolution kernels on a device against the definition.
#include "custom_calls/cuda/conv_grad.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "custom_calls/reference/conv_grad.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/conv_cases.h"
#include "tests/custom_calls/cuda/device_buffer.h"
#include "tests/custom_calls/tolerance.h"

namespace bk::cuda {
namespace {

template <class T>
struct Conv {
  using Acc = Accumulator<T>;

  Conv(Random& random, const ConvShape& s)
      : shape(s),
        x_size(ImageElements(s)),
        g_size(GradientElements(s)),
        k_size(KernelElements(s)),
        x(Integers<T>(random, s.batch * x_size)),
        g(Integers<T>(random, s.batch * g_size)),
        factor(s.batch) {
    for (int64_t i = 0; i < s.batch; ++i) factor[i] = static_cast<float>(2 - i);
  }
  void Run() {
    auto device_x = DeviceBuffer<T>::Of(x, "x");
    auto device_g = DeviceBuffer<T>::Of(g, "g");
    auto device_factor = DeviceBuffer<Acc>::Of(factor, "factor");
    DeviceBuffer<Acc> norms(shape.batch, "sq_norm");
    DeviceBuffer<Acc> uppers(shape.batch, "sq_norm_upper");
    DeviceBuffer<Acc> grads(shape.batch * k_size, "grad");
    DeviceBuffer<Acc> total(k_size, "sum");
    DeviceBuffer<char> work(ConvNormWorkspaceBytes(shape), "norm workspace");
    DeviceBuffer<char> sum_work(ConvSumWorkspaceBytes(shape), "sum workspace");
    EXPECT_TRUE(
        Succeeded(ConvNorm(shape, device_x.data(), device_g.data(),
                           norms.data(), uppers.data(), work.data(), nullptr)));
    norm = norms.Get();
    norm_upper = uppers.Get();
    EXPECT_TRUE(Succeeded(ConvGrad(shape, device_x.data(), device_g.data(),
                                   grads.data(), norms.data(), uppers.data(),
                                   work.data(), nullptr)));
    grad = grads.Get();
    grad_norm = norms.Get();
    grad_upper = uppers.Get();
    EXPECT_TRUE(Succeeded(ConvSum(shape, device_x.data(), device_factor.data(),
                                  device_g.data(), total.data(),
                                  sum_work.data(), nullptr)));
    sum = total.Get();
  }
  std::vector<long double> Exact(int64_t i) const {
    return ExactGrad(shape, x.data() + i * x_size, g.data() + i * g_size);
  }
  ConvShape shape;
  int64_t x_size, g_size, k_size;
  Array<T> x, g;
  Array<Acc> factor;
  std::vector<Acc> norm, norm_upper, grad, grad_norm, grad_upper, sum;
};

template <class T>
void ExpectExact(Random& random, const ConvShape& shape) {
  Conv<T> conv(random, shape);
  conv.Run();
  std::vector<long double> sum(conv.k_size);
  for (int64_t i = 0; i < shape.batch; ++i) {
    const auto exact = conv.Exact(i);
    for (int64_t k = 0; k < conv.k_size; ++k) {
      ASSERT_EQ(conv.grad[i * conv.k_size + k], exact[k]) << k;
      sum[k] += exact[k] * static_cast<long double>(conv.factor[i]);
    }
    const long double squares = Squares(exact);
    const auto rounded = static_cast<Accumulator<T>>(squares);
    ASSERT_EQ(conv.norm[i], rounded);
    ASSERT_EQ(conv.grad_norm[i], rounded);
    ASSERT_GE(static_cast<long double>(conv.norm_upper[i]), squares);
    ASSERT_GE(static_cast<long double>(conv.grad_upper[i]), squares);
  }
  for (int64_t k = 0; k < conv.k_size; ++k) ASSERT_EQ(conv.sum[k], sum[k]);
}

class ConvGradTest : public DeviceTest {
 protected:
  Random random_{20221001};
};

// Strides, dilations, padding of either sign, groups, one to three dimensions,
// empty arrays. Those with more than 2^18 terms would take long.
TEST_F(ConvGradTest, ExactOnSmallIntegers) {
  int number = 0;
  for (const ConvShape& shape : OddShapes()) {
    SCOPED_TRACE(testing::Message() << "shape " << number++);
    const int64_t terms = KernelElements(shape) * Volume(shape.out);
    if (terms > int64_t{1} << 18) continue;
    ExpectExact<float>(random_, shape);
  }
}

// Two tiles of either side, and images of several pixel blocks.
TEST_F(ConvGradTest, ExactForEveryElementTypeOnFewBlocks) {
  device::LimitBlocks(3);
  ConvShape grouped = Conv2d(5, 3, 2, 3, 11, 66);
  grouped.groups = 2, grouped.images = 2;
  ConvShape depthwise = Conv2d(3, 70, 2, 2, 1, 1);
  depthwise.groups = 130;
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    ExpectExact<T>(random_, grouped);
    ExpectExact<T>(random_, depthwise);
  });
}

// 512 tasks are wanted and there are 300 tiles: two slices of five examples.
TEST_F(ConvGradTest, SlicesOfTheBatch) {
  ConvShape shape = Conv2d(1, 300, 1, 300, 1, 1);
  shape.batch = 5, shape.groups = 2, shape.low[2] = 0, shape.out[2] = 1;
  EXPECT_EQ(ConvSumWorkspaceBytes(shape), 2 * 600 * 8);
  ExpectExact<float>(random_, shape);
}

TEST_F(ConvGradTest, RandomWithinTheDerivedTolerance) {
  ConvShape depthwise = Conv2d(15, 14, 3, 3, 1, 1);
  depthwise.groups = 20;
  for (const ConvShape& shape : {Conv2d(15, 14, 3, 3, 5, 20), depthwise}) {
    Conv<float> conv(random_, shape);
    conv.x = Normals<float>(random_, conv.x.size());
    conv.g = Normals<float>(random_, conv.g.size(), 1e-3);
    conv.Run();
    for (int64_t i = 0; i < 2; ++i) {
      std::vector<double> exact(conv.k_size);
      std::vector<double> scale(conv.k_size);
      reference::ConvGrad(shape, conv.x.data() + i * conv.x_size,
                          conv.g.data() + i * conv.g_size, 1.0, exact.data(),
                          scale.data());
      double squares = 0;
      for (int64_t k = 0; k < conv.k_size; ++k) {
        ASSERT_NEAR(static_cast<double>(conv.grad[i * conv.k_size + k]),
                    exact[k], SumTolerance<float>(64, scale[k]));
        squares += exact[k] * exact[k];
      }
      // 66 roundings of S, and S is about sqrt(210) times the norm.
      EXPECT_GE(conv.norm_upper[i], squares * (1 - 1e-12));
      EXPECT_LE(conv.norm_upper[i], squares * (1 + 2 * 70 * 0x1p-24 * 20));
      EXPECT_LE(conv.grad_upper[i], conv.grad_norm[i] * (1 + 3 * 0x1p-23));
    }
  }
}

TEST_F(ConvGradTest, BadExamplesSpoilThemselvesOnly) {
  ConvShape depthwise = Conv2d(6, 5, 3, 3, 1, 1);
  depthwise.groups = 33;
  for (const ConvShape& shape : {Conv2d(6, 5, 3, 3, 4, 7), depthwise}) {
    Conv<float> conv(random_, shape);
    conv.factor[0] = 0;
    conv.Run();
    const auto upper = conv.norm_upper;
    const auto sum = conv.sum;
    conv.x[3] = std::nanf("");
    conv.Run();
    EXPECT_FALSE(std::isfinite(conv.norm[0]));
    EXPECT_FALSE(std::isfinite(conv.norm_upper[0]));
    EXPECT_FALSE(std::isfinite(conv.grad_upper[0]));
    EXPECT_EQ(conv.norm_upper[1], upper[1]);
    EXPECT_EQ(conv.sum, sum);
  }
}

TEST_F(ConvGradTest, ZeroIsZeroAndTinyIsNot) {
  ConvShape depthwise = Conv2d(6, 5, 3, 3, 1, 1);
  depthwise.groups = 7;
  for (const ConvShape& shape : {Conv2d(6, 5, 3, 3, 4, 7), depthwise}) {
    Conv<float> conv(random_, shape);
    std::fill_n(conv.x.data(), conv.x.size(), 0.0F);
    conv.x[conv.x.size() - 1] = 1e-44F;
    std::fill_n(conv.g.data(), conv.g.size(), 1.0F);
    conv.Run();
    EXPECT_EQ(conv.norm_upper[0], 0);
    EXPECT_EQ(conv.grad_upper[0], 0);
    EXPECT_GT(conv.norm_upper[1], 0);
  }
}

TEST_F(ConvGradTest, NeverBelowOnManySmallCases) {
  std::uniform_int_distribution<int64_t> size(1, 4);
  int64_t below = 0;
  for (int64_t repeat = 0; repeat < 60; ++repeat) {
    ConvShape shape =
        Conv2d(size(random_), size(random_), size(random_) % 3 + 1,
               size(random_), size(random_), size(random_));
    shape.batch = 1;
    if (repeat % 4 < 2) {
      shape.groups = 2 + 3 * size(random_), shape.cin = 1, shape.cout = 1;
    }
    Conv<float> conv(random_, shape);
    FillHard(random_, repeat, shape.groups * shape.cout, &conv.x, &conv.g);
    conv.Run();
    if (!std::isfinite(conv.norm_upper[0])) continue;
    const long double exact = Squares(conv.Exact(0));
    below += static_cast<long double>(conv.norm_upper[0]) < exact ? 1 : 0;
  }
  EXPECT_EQ(below, 0);
}

}  // namespace
}  // namespace bk::cuda
