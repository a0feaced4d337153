// Elements as numbers of their accumulator type.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_ELEMENT_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_ELEMENT_CUH_

#include "custom_calls/cuda/platform.cuh"
#include "custom_calls/element.h"

namespace bk::cuda {

__device__ inline double ToAccumulator(double x) { return x; }
__device__ inline float ToAccumulator(float x) { return x; }
__device__ inline float ToAccumulator(BFloat16 x) {
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}
__device__ inline float ToAccumulator(Float16 x) {
  return __half2float(__ushort_as_half(x.bits));
}

// x y + z with one rounding. All device code is compiled without contraction,
// so that this is the only place where products and sums are joined.
__device__ inline float Fma(float x, float y, float z) { return fmaf(x, y, z); }
__device__ inline double Fma(double x, double y, double z) {
  return fma(x, y, z);
}

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_ELEMENT_CUH_
