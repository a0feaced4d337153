// Sums of squares in double: those of entries that a thread has in registers.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_SQUARES_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_SQUARES_CUH_

#include "custom_calls/cuda/element.cuh"

namespace bk::cuda {

// The sum of squares of this thread's entries, in double. It is 0 only if all
// entries are: where squares underflow the smallest number stands for them.
template <int kCount, class Acc>
__device__ double Squares(const Acc (&sums)[kCount]) {
  double squares = 0;
  bool zero = true;
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    const double x = sums[e];
    squares = Fma(x, x, squares);
    zero = zero && sums[e] == 0;
  }
  return squares == 0 && !zero ? 0x1p-1074 : squares;
}

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_SQUARES_CUH_
