// Weighted sums of arrays that exist in memory.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_WEIGHTED_SUM_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_WEIGHTED_SUM_H_

#include <cstdint>
#include <vector>

#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/element.h"
#include "custom_calls/parallel.h"
#include "custom_calls/shapes.h"

namespace bk {

// x [B, size] -> out [size]
template <class T>
struct SumArray {
  const T* x;
  int64_t size;
  Accumulator<T>* out;
};

// out = sum_i factor[i] * x[i] for every array; one pass over x, in the order
// of the examples.
//
// An example whose factor is 0 is not read, so a NaN or an infinity in it does
// no harm. An empty sum is zero.
template <class T>
void WeightedSums(const CpuKernels& kernels, Parallel& parallel, int64_t batch,
                  const Accumulator<T>* factor,
                  const std::vector<SumArray<T>>& arrays);

// The same for one array.
template <class T>
void WeightedSum(const CpuKernels& kernels, Parallel& parallel,
                 const WeightedSumShape& shape, const Accumulator<T>* factor,
                 const T* x, Accumulator<T>* out) {
  WeightedSums<T>(kernels, parallel, shape.batch, factor,
                  {{x, shape.size, out}});
}

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_WEIGHTED_SUM_H_
