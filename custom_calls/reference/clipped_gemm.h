// The definition of the clipped sum of per-example gradients.
#ifndef BK_JAX_CUSTOM_CALLS_REFERENCE_CLIPPED_GEMM_H_
#define BK_JAX_CUSTOM_CALLS_REFERENCE_CLIPPED_GEMM_H_

#include <cmath>
#include <cstdint>

#include "custom_calls/element.h"
#include "custom_calls/reference/convert.h"
#include "custom_calls/shapes.h"

namespace bk::reference {

// sum[n] = sum_i factor[i] * lhs[i,n]^T rhs[i,n] and, when `scale` is not null,
// the same sum of absolute values: the scale of its rounding errors.
template <class T>
void ClippedGemm(const ClippedGemmShape& shape, const T* lhs,
                 const Accumulator<T>* factor, const T* rhs, double* sum,
                 double* scale = nullptr) {
  for (int64_t w = 0; w < shape.weights; ++w) {
    for (int64_t j = 0; j < shape.m; ++j) {
      for (int64_t k = 0; k < shape.n; ++k) {
        double total = 0;
        double absolute = 0;
        for (int64_t i = 0; i < shape.batch; ++i) {
          if (factor[i] == 0) continue;
          for (int64_t t = 0; t < shape.positions; ++t) {
            const int64_t row = (i * shape.weights + w) * shape.positions + t;
            const double term = static_cast<double>(factor[i]) *
                                ToDouble(lhs[row * shape.m + j]) *
                                ToDouble(rhs[row * shape.n + k]);
            total += term;
            absolute += std::fabs(term);
          }
        }
        const int64_t entry = (w * shape.m + j) * shape.n + k;
        sum[entry] = total;
        if (scale != nullptr) scale[entry] = absolute;
      }
    }
  }
}

}  // namespace bk::reference

#endif  // BK_JAX_CUSTOM_CALLS_REFERENCE_CLIPPED_GEMM_H_
