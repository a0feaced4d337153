// Sums over the threads of a warp and of a block, always in the same order.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_REDUCE_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_REDUCE_CUH_

#include "custom_calls/cuda/platform.cuh"

namespace bk::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

// Every lane gets the sum.
__device__ inline double WarpSum(double x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, lanes);
  }
  return x;
}

// Thread 0 gets the sum; `scratch` has one number per warp. All threads call,
// and a barrier comes before the next use of scratch.
__device__ inline double BlockSum(double x, double* scratch) {
  x = WarpSum(x);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  double sum = 0;
  if (threadIdx.x == 0) {
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) {
      sum += scratch[warp];
    }
  }
  return sum;
}

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_REDUCE_CUH_
