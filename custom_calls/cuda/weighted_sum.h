// Weighted sums of arrays that exist in memory, on a GPU.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_WEIGHTED_SUM_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_WEIGHTED_SUM_H_

#include "custom_calls/cuda/runtime.h"
#include "custom_calls/element.h"
#include "custom_calls/shapes.h"

namespace bk::cuda {

// out = sum_i factor[i] * x[i], for x [B, size], out [size], in the order of
// the examples. An example whose factor is 0 is not read.
template <class T>
cudaError_t WeightedSum(const WeightedSumShape& shape,
                        const Accumulator<T>* factor, const T* x,
                        Accumulator<T>* out, cudaStream_t stream);

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_WEIGHTED_SUM_H_
