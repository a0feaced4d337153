// Per-sample gradients of every instruction set against the definition, and the
// certified norms of what was written.
#include "custom_calls/cpu/dense/per_sample_grad.h"

#include <cfloat>
#include <cmath>
#include <vector>

#include "custom_calls/reference/per_sample_grad.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/norm_cases.h"
#include "tests/custom_calls/test_data.h"
#include "tests/custom_calls/tolerance.h"

namespace bk {
namespace {

// Results start as NaN, so that an entry which nobody writes is noticed.
template <class T>
struct Gradients {
  using Acc = Accumulator<T>;
  Gradients(const CpuKernels& kernels, Parallel& parallel,
            const DenseShape& shape, const Array<T>& a, const Array<T>& g)
      : entries(shape.weights * shape.d * shape.p),
        grad(Filled<Acc>(shape.batch * entries, [] { return std::nan(""); })),
        sq_norm(shape.batch),
        upper(shape.batch) {
    PerSampleGrad(kernels, parallel, shape, a.data(), g.data(), grad.data(),
                  sq_norm.data(), upper.data());
  }
  // Of the gradient of example i as it was written.
  long double Exact(int64_t i) const {
    long double sum = 0;
    for (int64_t k = 0; k < entries; ++k) {
      const auto value = static_cast<long double>(grad[i * entries + k]);
      sum += value * value;
    }
    return sum;
  }
  int64_t entries;
  Array<Acc> grad, sq_norm, upper;
};

class PerSampleGradTest : public IsaTest {};
BK_INSTANTIATE_FOR_EACH_ISA_AND_SOFT_TILES(PerSampleGradTest);

// Around micro-tiles, strips (96), tiles (192 x 384) and blocks (192 positions,
// 320 in tile registers).
TEST_P(PerSampleGradTest, ExactOnSmallIntegers) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (const DenseShape& shape :
         {DenseShape{2, 2, 5, 7, 9}, DenseShape{3, 1, 1, 200, 9},
          DenseShape{1, 1, 2, 7, 800}, DenseShape{1, 2, 330, 9, 17},
          DenseShape{1, 1, 193, 9, 50}, DenseShape{2, 1, 3, 97, 193},
          DenseShape{2, 1, 0, 3, 4}, DenseShape{0, 1, 3, 4, 5},
          DenseShape{2, 1, 3, 0, 5}, DenseShape{2, 1, 1, 1, 1}}) {
      const Array<T> a = Integers<T>(random_, Rows(shape) * shape.d);
      const Array<T> g = Integers<T>(random_, Rows(shape) * shape.p);
      const Gradients<T> result(kernels(), serial_, shape, a, g);
      std::vector<double> expected(result.grad.size());
      reference::PerSampleGrad(shape, a.data(), g.data(), expected.data());
      for (int64_t k = 0; k < result.grad.size(); ++k) {
        ASSERT_EQ(result.grad[k], expected[k]);
      }
      for (int64_t i = 0; i < shape.batch; ++i) {
        const auto exact = static_cast<double>(result.Exact(i));
        EXPECT_EQ(result.sq_norm[i], static_cast<Accumulator<T>>(exact));
        EXPECT_GE(result.upper[i], exact);
        EXPECT_LE(result.upper[i], 1.0001 * exact + FLT_MIN);
      }
    }
  });
}

TEST_P(PerSampleGradTest, RandomWithinTheDerivedTolerance) {
  const DenseShape shape = {2, 2, 345, 50, 70};
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    const Array<T> a = Normals<T>(random_, Rows(shape) * shape.d);
    const Array<T> g = Normals<T>(random_, Rows(shape) * shape.p);
    const Gradients<T> result(kernels(), serial_, shape, a, g);
    std::vector<double> expected(result.grad.size());
    std::vector<double> scale(result.grad.size());
    reference::PerSampleGrad(shape, a.data(), g.data(), expected.data(),
                             scale.data());
    for (int64_t k = 0; k < result.grad.size(); ++k) {
      ASSERT_NEAR(static_cast<double>(result.grad[k]), expected[k],
                  SumTolerance<T>(shape.positions, scale[k]));
    }
    for (int64_t i = 0; i < shape.batch; ++i) {
      EXPECT_GE(static_cast<long double>(result.upper[i]), result.Exact(i));
      EXPECT_LE(result.upper[i], result.Exact(i) * (1 + 1e-5L));
    }
  });
}

// Squares underflow; the bound must not.
TEST_P(PerSampleGradTest, BoundSurvivesUnderflow) {
  for (float tiny : {FLT_TRUE_MIN, 1e-40f, 1e-30f, 1e-21f, 1e-19f}) {
    const DenseShape shape = {1, 1, 2, 9, 20};
    const Array<float> a = Normals<float>(random_, 18, tiny);
    const Array<float> g = Integers<float>(random_, 40);
    const Gradients<float> result(kernels(), serial_, shape, a, g);
    EXPECT_GE(static_cast<long double>(result.upper[0]), result.Exact(0));
    if (result.Exact(0) > 0) {
      EXPECT_GE(result.upper[0], FLT_MIN);
    }
  }
}

TEST_P(PerSampleGradTest, NonFiniteInputSpoilsItsOwnExampleOnly) {
  const DenseShape shape = {3, 1, 4, 9, 5};
  Array<float> a = Integers<float>(random_, Rows(shape) * shape.d);
  const Array<float> g = Normals<float>(random_, Rows(shape) * shape.p);
  const Gradients<float> clean(kernels(), serial_, shape, a, g);
  a[(shape.positions + 1) * shape.d] = std::nanf("");
  const Gradients<float> result(kernels(), serial_, shape, a, g);
  EXPECT_FALSE(std::isfinite(result.upper[1]));
  for (int i : {0, 2}) EXPECT_EQ(result.upper[i], clean.upper[i]);
}

TEST_P(PerSampleGradTest, SameBitsForAnyNumberOfThreads) {
  const DenseShape shape = {3, 2, 130, 270, 165};
  const Array<float> a = Normals<float>(random_, Rows(shape) * shape.d);
  const Array<float> g = Normals<float>(random_, Rows(shape) * shape.p);
  const Gradients<float> expected(kernels(), serial_, shape, a, g);
  for (int threads : {1, 2, 5}) {
    StripedParallel striped(threads);
    const Gradients<float> result(kernels(), striped, shape, a, g);
    for (int64_t k = 0; k < result.grad.size(); ++k) {
      ASSERT_EQ(result.grad[k], expected.grad[k]);
    }
    for (int64_t i = 0; i < shape.batch; ++i) {
      EXPECT_EQ(result.upper[i], expected.upper[i]);
    }
  }
}

}  // namespace
}  // namespace bk
