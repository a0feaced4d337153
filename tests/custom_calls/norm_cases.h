// Data on which norms are hard, and checks that all norms of dense layers
// share.
#ifndef BK_JAX_TESTS_CUSTOM_CALLS_NORM_CASES_H_
#define BK_JAX_TESTS_CUSTOM_CALLS_NORM_CASES_H_

#include <cmath>
#include <cstdint>

#include "custom_calls/reference/convert.h"
#include "custom_calls/shapes.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/test_data.h"

namespace bk {

// One example with one weight.
template <class T>
struct NormCase {
  int64_t positions, d, p;
  Array<T> a, g;
  DenseShape shape() const { return {1, 1, positions, d, p}; }
};

// a_t = mean * m + noise * N(0, 1), and gradients that sum to zero over t: the
// mean cancels from a^T g but dominates both Gram matrices.
template <class T>
NormCase<T> Cancelling(Random& random, int64_t positions, int64_t d, int64_t p,
                       double mean, double noise) {
  std::normal_distribution<double> normal;
  NormCase<T> c = {positions, d, p, Array<T>(positions * d),
                   Array<T>(positions * p)};
  const Array<double> m = Normals<double>(random, d);
  for (int64_t t = 0; t < positions; ++t) {
    for (int64_t k = 0; k < d; ++k) {
      c.a[t * d + k] =
          reference::FromDouble<T>(mean * m[k] + noise * normal(random));
    }
  }
  for (int64_t k = 0; k < p; ++k) {
    double sum = 0;
    for (int64_t t = 0; t < positions; ++t) {
      T& entry = c.g[t * p + k];
      entry =
          reference::FromDouble<T>(t + 1 < positions ? normal(random) : -sum);
      sum += reference::ToDouble(entry);
    }
  }
  return c;
}

// Rows of a and of g.
inline int64_t Rows(const DenseShape& shape) {
  return shape.batch * shape.weights * shape.positions;
}

// A NaN or infinity in one example makes its norm not finite, even where the
// gradient is zero, and changes no bit of the others. Norms<T>(kernels,
// parallel, shape, a, g) has the results sq_norm and upper.
template <template <class> class Norms>
void CheckThatNonFiniteSpoilsItsOwnExample(const CpuKernels& kernels,
                                           Parallel& serial, Random& random) {
  const DenseShape shape = {3, 2, 50, 9, 5};
  for (double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    ForEachElementType([&](auto element) {
      using T = decltype(element);
      Array<T> a = Integers<T>(random, Rows(shape) * shape.d);
      Array<T> g = Integers<T>(random, Rows(shape) * shape.p);
      const Norms<T> clean(kernels, serial, shape, a, g);
      // Example 1, weight 0; the gradient of that position is zero.
      const int64_t row = shape.weights * shape.positions + 49;
      a[row * shape.d + 3] = reference::FromDouble<T>(bad);
      for (int64_t k = 0; k < shape.p; ++k) g[row * shape.p + k] = T{};
      const Norms<T> norms(kernels, serial, shape, a, g);
      EXPECT_FALSE(std::isfinite(norms.sq_norm[1]));
      EXPECT_FALSE(std::isfinite(norms.upper[1]));
      for (int i : {0, 2}) {
        EXPECT_EQ(norms.sq_norm[i], clean.sq_norm[i]);
        EXPECT_EQ(norms.upper[i], clean.upper[i]);
      }
    });
  }
}

}  // namespace bk

#endif  // BK_JAX_TESTS_CUSTOM_CALLS_NORM_CASES_H_
