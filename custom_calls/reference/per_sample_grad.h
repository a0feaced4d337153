// The definitions of per-example gradients and of their weighted sum.
#ifndef BK_JAX_CUSTOM_CALLS_REFERENCE_PER_SAMPLE_GRAD_H_
#define BK_JAX_CUSTOM_CALLS_REFERENCE_PER_SAMPLE_GRAD_H_

#include <cmath>
#include <cstdint>

#include "custom_calls/element.h"
#include "custom_calls/reference/convert.h"
#include "custom_calls/shapes.h"

namespace bk::reference {

// grad[i,n] = a[i,n]^T g[i,n], [B, N, d, p], and, when `scale` is not null, the
// same of absolute values: the scale of its rounding errors.
template <class T>
void PerSampleGrad(const DenseShape& shape, const T* a, const T* g,
                   double* grad, double* scale = nullptr) {
  for (int64_t pair = 0; pair < shape.batch * shape.weights; ++pair) {
    for (int64_t j = 0; j < shape.d; ++j) {
      for (int64_t k = 0; k < shape.p; ++k) {
        double total = 0;
        double absolute = 0;
        for (int64_t t = 0; t < shape.positions; ++t) {
          const int64_t row = pair * shape.positions + t;
          const double term =
              ToDouble(a[row * shape.d + j]) * ToDouble(g[row * shape.p + k]);
          total += term;
          absolute += std::fabs(term);
        }
        const int64_t entry = (pair * shape.d + j) * shape.p + k;
        grad[entry] = total;
        if (scale != nullptr) scale[entry] = absolute;
      }
    }
  }
}

// sum[k] = sum_i factor[i] x[i, k], without the examples whose factor is 0.
template <class T>
void WeightedSum(const WeightedSumShape& shape, const Accumulator<T>* factor,
                 const T* x, double* sum, double* scale = nullptr) {
  for (int64_t k = 0; k < shape.size; ++k) {
    double total = 0;
    double absolute = 0;
    for (int64_t i = 0; i < shape.batch; ++i) {
      if (factor[i] == 0) continue;
      const double term =
          static_cast<double>(factor[i]) * ToDouble(x[i * shape.size + k]);
      total += term;
      absolute += std::fabs(term);
    }
    sum[k] = total;
    if (scale != nullptr) scale[k] = absolute;
  }
}

}  // namespace bk::reference

#endif  // BK_JAX_CUSTOM_CALLS_REFERENCE_PER_SAMPLE_GRAD_H_
