// Gradients of convolution kernels of every instruction set against the
// definition: norms, gradients and sums.
#include "custom_calls/cpu/conv/conv_grad.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "custom_calls/reference/conv_grad.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/conv_cases.h"
#include "tests/custom_calls/test_data.h"
#include "tests/custom_calls/tolerance.h"

namespace bk {
namespace {

template <class T>
struct Conv {
  Conv(Random& random, const ConvShape& s)
      : shape(s),
        x_size(ImageElements(s)),
        g_size(GradientElements(s)),
        k_size(KernelElements(s)),
        x(Integers<T>(random, s.batch * x_size)),
        g(Integers<T>(random, s.batch * g_size)),
        factor(s.batch),
        norm(s.batch),
        norm_upper(s.batch),
        grad(s.batch * k_size),
        grad_norm(s.batch),
        grad_upper(s.batch),
        sum(k_size) {
    for (int64_t i = 0; i < s.batch; ++i) factor[i] = static_cast<float>(2 - i);
  }
  void Run(const CpuKernels& kernels, Parallel& parallel) {
    ConvNorm(kernels, parallel, shape, x.data(), g.data(), norm.data(),
             norm_upper.data());
    ConvGrad(kernels, parallel, shape, x.data(), g.data(), grad.data(),
             grad_norm.data(), grad_upper.data());
    ConvSum(kernels, parallel, shape, x.data(), factor.data(), g.data(),
            sum.data());
  }
  std::vector<long double> Exact(int64_t i) const {
    return ExactGrad(shape, x.data() + i * x_size, g.data() + i * g_size);
  }
  ConvShape shape;
  int64_t x_size, g_size, k_size;
  Array<T> x, g;
  Array<Accumulator<T>> factor, norm, norm_upper, grad, grad_norm, grad_upper,
      sum;
};

class ConvGradTest : public IsaTest {};
BK_INSTANTIATE_FOR_EACH_ISA(ConvGradTest);

TEST_P(ConvGradTest, ExactOnSmallIntegers) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    int number = 0;
    for (const ConvShape& shape : OddShapes()) {
      SCOPED_TRACE(testing::Message() << "shape " << number++);
      Conv<T> conv(random_, shape);
      conv.Run(kernels(), serial_);
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
  });
}

TEST_P(ConvGradTest, RandomWithinTheDerivedTolerance) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    Conv<T> conv(random_, Conv2d(30, 31, 3, 3, 10, 20));
    conv.x = Normals<T>(random_, conv.x.size());
    conv.g = Normals<T>(random_, conv.g.size(), 1e-3);
    conv.Run(kernels(), serial_);
    for (int64_t i = 0; i < 2; ++i) {
      std::vector<double> exact(conv.k_size);
      std::vector<double> scale(conv.k_size);
      reference::ConvGrad(conv.shape, conv.x.data() + i * conv.x_size,
                          conv.g.data() + i * conv.g_size, 1.0, exact.data(),
                          scale.data());
      double squares = 0;
      for (int64_t k = 0; k < conv.k_size; ++k) {
        ASSERT_NEAR(static_cast<double>(conv.grad[i * conv.k_size + k]),
                    exact[k], SumTolerance<T>(256, scale[k]));
        squares += exact[k] * exact[k];
      }
      // 256 roundings of S, and S is about sqrt(930) times the norm; in double
      // the outer sums count too.
      const double u =
          UnitRoundoff<T>() * (sizeof(T) == sizeof(double) ? 8 : 1);
      EXPECT_GE(conv.norm_upper[i],
                squares * (1 - 1e3 * UnitRoundoff<double>()));
      EXPECT_LE(conv.norm_upper[i], squares * (1 + 2 * 300 * u * 50));
      EXPECT_LE(conv.grad_upper[i], conv.grad_norm[i] * (1 + 300 * u));
    }
  });
}

TEST_P(ConvGradTest, BadExamplesSpoilThemselvesOnly) {
  Conv<float> conv(random_, Conv2d(6, 5, 3, 3, 4, 7));
  conv.factor[0] = 0;
  conv.Run(kernels(), serial_);
  const auto upper = conv.norm_upper;
  const auto sum = conv.sum;
  conv.x[3] = std::nanf("");
  conv.Run(kernels(), serial_);
  EXPECT_FALSE(std::isfinite(conv.norm[0]));
  EXPECT_FALSE(std::isfinite(conv.norm_upper[0]));
  EXPECT_FALSE(std::isfinite(conv.grad_upper[0]));
  EXPECT_EQ(conv.norm_upper[1], upper[1]);
  for (int64_t k = 0; k < sum.size(); ++k) ASSERT_EQ(conv.sum[k], sum[k]);
}

TEST_P(ConvGradTest, DepthwiseBoundIsTight) {
  ConvShape shape = Conv2d(30, 31, 3, 3, 1, 1);
  shape.groups = 40;
  Conv<float> conv(random_, shape);
  conv.x = Normals<float>(random_, conv.x.size());
  conv.g = Normals<float>(random_, conv.g.size(), 1e-3);
  conv.Run(kernels(), serial_);
  for (int64_t i = 0; i < 2; ++i) {
    const auto exact = static_cast<double>(Squares(conv.Exact(i)));
    EXPECT_GE(conv.norm_upper[i], exact);
    // 258 roundings of S, and S is about sqrt(930) times the norm.
    EXPECT_LE(conv.norm_upper[i], exact * (1 + 2 * 300 * 0x1p-24 * 50));
    EXPECT_GE(conv.grad_upper[i], exact * (1 - 1e-4));
  }
}

TEST_P(ConvGradTest, DepthwiseZeroAndBadExamples) {
  ConvShape shape = Conv2d(6, 5, 3, 3, 1, 1);
  shape.groups = 33;
  Conv<float> conv(random_, shape);
  conv.factor[1] = 0;
  std::fill_n(conv.x.data(), conv.x_size, 0.0F);
  conv.x[conv.x_size + 7] = std::nanf("");
  conv.Run(kernels(), serial_);
  EXPECT_EQ(conv.norm_upper[0], 0);
  EXPECT_EQ(conv.grad_upper[0], 0);
  EXPECT_FALSE(std::isfinite(conv.norm[1]));
  EXPECT_FALSE(std::isfinite(conv.norm_upper[1]));
  EXPECT_FALSE(std::isfinite(conv.grad_upper[1]));
  for (int64_t k = 0; k < conv.sum.size(); ++k) ASSERT_EQ(conv.sum[k], 0);
}

TEST_P(ConvGradTest, ZeroIsZeroAndTinyIsNot) {
  Conv<float> conv(random_, Conv2d(6, 5, 3, 3, 4, 7));
  std::fill_n(conv.x.data(), conv.x.size(), 0.0F);
  conv.x[conv.x.size() - 1] = 1e-44F;
  conv.Run(kernels(), serial_);
  EXPECT_EQ(conv.norm_upper[0], 0);
  EXPECT_EQ(conv.grad_upper[0], 0);
  EXPECT_GT(conv.norm_upper[1], 0);
}

TEST_P(ConvGradTest, SameBitsForAnyNumberOfThreads) {
  Conv<float> conv(random_, Conv2d(20, 21, 3, 3, 70, 80));
  conv.x = Normals<float>(random_, conv.x.size());
  conv.g = Normals<float>(random_, conv.g.size());
  conv.Run(kernels(), serial_);
  const auto norm = conv.norm_upper;
  const auto grad = conv.grad;
  const auto sum = conv.sum;
  for (int threads : {1, 2, 5}) {
    StripedParallel striped(threads);
    conv.Run(kernels(), striped);
    for (int64_t i = 0; i < 2; ++i) EXPECT_EQ(conv.norm_upper[i], norm[i]);
    for (int64_t k = 0; k < grad.size(); ++k) ASSERT_EQ(conv.grad[k], grad[k]);
    for (int64_t k = 0; k < sum.size(); ++k) ASSERT_EQ(conv.sum[k], sum[k]);
  }
}

// Every block fits the scratch that tasks get, for shapes nobody would choose.
TEST(ConvBlocksTest, FitTheScratch) {
  EXPECT_LE(ConvScratchBytes<float>(), 1 << 20);
  Random random(1);
  std::uniform_int_distribution<int64_t> log_size(0, 10);
  const auto size = [&] {
    return std::uniform_int_distribution<int64_t>(
        1, int64_t{1} << log_size(random))(random);
  };
  for (int repeat = 0; repeat < 20000; ++repeat) {
    ConvShape s = {1,
                   size(),
                   {1, size(), size()},
                   {size(), size(), size()},
                   {size() % 5 + 1, size() % 60 + 1, size()},
                   {1, size(), size()},
                   {0, 0, 0},
                   {1, 1, 1},
                   {1, size(), size()},
                   1,
                   size(),
                   size()};
    if (Volume(s.kernel) * s.cin * s.cout > (1 << 22)) continue;
    const int64_t lanes = int64_t{4} << repeat % 3;
    int64_t covered = 0;
    for (const ConvBlock& b : ConvBlocks(s, lanes, repeat % 2 == 0 ? 1 : 8)) {
      const int64_t rows = (b.q1 - b.q0) * (b.kw1 - b.kw0) * (b.c1 - b.c0);
      const int64_t width = (b.pixel_columns - 1) * s.stride[2] +
                            (b.kw1 - b.kw0 - 1) * s.dilation[2] + 1;
      const int64_t depth =
          (b.q1 - b.q0) * ((b.c1 - b.c0 + lanes - 1) / lanes * lanes);
      ASSERT_LE(rows, kConvRows);
      ASSERT_LE(b.o1 - b.o0, kConvColumns);
      ASSERT_LE(b.pixel_rows * b.pixel_columns, kConvPixels);
      ASSERT_LE(depth * b.pixel_rows * width, kConvImage);
      covered += rows * (b.o1 - b.o0);
    }
    ASSERT_EQ(covered, Volume(s.kernel) * s.cin * s.cout);
  }
}

TEST_P(ConvGradTest, NeverBelowOnManySmallCases) {
  std::uniform_int_distribution<int64_t> size(1, 4);
  int64_t below = 0;
  const int64_t cases = StressCases();
  for (int64_t repeat = 0; repeat < cases; ++repeat) {
    ConvShape shape =
        Conv2d(size(random_), size(random_), size(random_) % 3 + 1,
               size(random_), size(random_), size(random_));
    shape.batch = 1;
    if (repeat % 4 < 2) {
      shape.groups = 2 + 3 * size(random_), shape.cin = 1, shape.cout = 1;
    }
    Conv<float> conv(random_, shape);
    FillHard(random_, repeat, shape.groups * shape.cout, &conv.x, &conv.g);
    conv.Run(kernels(), serial_);
    if (!std::isfinite(conv.norm_upper[0])) continue;
    const long double exact = Squares(conv.Exact(0));
    below += static_cast<long double>(conv.norm_upper[0]) < exact ? 1 : 0;
  }
  EXPECT_EQ(below, 0) << "of " << cases;
}

}  // namespace
}  // namespace bk
