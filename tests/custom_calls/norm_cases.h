// Data on which norms are hard: one example with one weight.
#ifndef BK_JAX_TESTS_CUSTOM_CALLS_NORM_CASES_H_
#define BK_JAX_TESTS_CUSTOM_CALLS_NORM_CASES_H_

#include "custom_calls/reference/convert.h"
#include "custom_calls/shapes.h"
#include "tests/custom_calls/test_data.h"

namespace bk {

template <class T>
struct NormCase {
  int64_t positions, d, p;
  Array<T> a, g;
  GhostNormShape shape() const { return {1, 1, positions, d, p}; }
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

}  // namespace bk

#endif  // BK_JAX_TESTS_CUSTOM_CALLS_NORM_CASES_H_
