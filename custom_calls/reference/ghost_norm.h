// The definition of the ghost norm, which is not how it is computed elsewhere:
// form every per-example gradient and square it.
#ifndef BK_JAX_CUSTOM_CALLS_REFERENCE_GHOST_NORM_H_
#define BK_JAX_CUSTOM_CALLS_REFERENCE_GHOST_NORM_H_

#include <cmath>
#include <cstdint>

#include "custom_calls/reference/convert.h"
#include "custom_calls/shapes.h"

namespace bk::reference {

// sq_norm[i] = sum_n |a[i,n]^T g[i,n]|_F^2. Real is double, or long double
// where double itself is on trial.
template <class Real, class T>
void GhostNorm(const DenseShape& shape, const T* a, const T* g, Real* sq_norm) {
  for (int64_t i = 0; i < shape.batch; ++i) {
    sq_norm[i] = 0;
    for (int64_t w = 0; w < shape.weights; ++w) {
      const int64_t row = (i * shape.weights + w) * shape.positions;
      for (int64_t j = 0; j < shape.d; ++j) {
        for (int64_t k = 0; k < shape.p; ++k) {
          Real gradient = 0;
          for (int64_t t = row; t < row + shape.positions; ++t) {
            gradient += static_cast<Real>(ToDouble(a[t * shape.d + j])) *
                        static_cast<Real>(ToDouble(g[t * shape.p + k]));
          }
          sq_norm[i] += gradient * gradient;
        }
      }
    }
  }
}

// S_i^2 summed over weights, S = sum_t |a_t| |g_t|: the scale of rounding
// errors of <a a^T, g g^T>.
template <class T>
void GhostNormScale(const DenseShape& shape, const T* a, const T* g,
                    double* scale) {
  const auto norm = [](const T* x, int64_t size) {
    double sum = 0;
    for (int64_t k = 0; k < size; ++k) sum += ToDouble(x[k]) * ToDouble(x[k]);
    return std::sqrt(sum);
  };
  for (int64_t i = 0; i < shape.batch; ++i) {
    scale[i] = 0;
    for (int64_t w = 0; w < shape.weights; ++w) {
      const int64_t row = (i * shape.weights + w) * shape.positions;
      double s = 0;
      for (int64_t t = row; t < row + shape.positions; ++t) {
        s += norm(a + t * shape.d, shape.d) * norm(g + t * shape.p, shape.p);
      }
      scale[i] += s * s;
    }
  }
}

}  // namespace bk::reference

#endif  // BK_JAX_CUSTOM_CALLS_REFERENCE_GHOST_NORM_H_
