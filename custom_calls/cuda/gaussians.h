// The noise of many arrays in one launch, on a GPU.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_GAUSSIANS_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_GAUSSIANS_H_

#include "custom_calls/cuda/runtime.h"
#include "custom_calls/noise.h"

namespace bk::cuda {

// Arrays of one launch: their addresses are parameters of the kernel. More of
// them are several launches.
inline constexpr int64_t kMaxNoiseArrays = 512;

// out[k] = x[k] + *stddev * z(k) of each of `count` arrays: what Gaussian gives
// for them one by one, bit for bit. key [8] and stddev [] are in device memory,
// the list of arrays is not.
cudaError_t Gaussians(int64_t count, const NoiseArray* arrays, uint32_t domain,
                      const uint32_t* key, const float* stddev,
                      cudaStream_t stream);

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_GAUSSIANS_H_
