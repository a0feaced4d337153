// Squared norms of gradients that exist in memory.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_SQUARED_NORMS_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_SQUARED_NORMS_H_

#include <cstdint>
#include <vector>

#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/element.h"
#include "custom_calls/parallel.h"

namespace bk {

// x [B, size]
template <class T>
struct ExampleRows {
  const T* x;
  int64_t size;
};

// sq_norm[i] = sum over all arrays of |x[i]|^2, and a bound that is never below
// it. One call for many arrays: the biases and scales of a network are small.
template <class T>
void SquaredNorms(const CpuKernels& kernels, Parallel& parallel, int64_t batch,
                  const std::vector<ExampleRows<T>>& arrays,
                  Accumulator<T>* sq_norm, Accumulator<T>* sq_norm_upper);

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_SQUARED_NORMS_H_
