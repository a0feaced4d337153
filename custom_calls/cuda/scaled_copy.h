// What a library's product needs before and after it to be a clipped sum: an
// operand with its factors, and a look at what factors of 0 hide.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_SCALED_COPY_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_SCALED_COPY_H_

#include <cstdint>

#include "custom_calls/cuda/runtime.h"

namespace bk::cuda {

// x [batch, size]: an operand of all examples.
struct ScaledCopyShape {
  int64_t batch;
  int64_t size;
};

// out[i] = factor[i] * x[i]; an example whose factor is 0 is not read, its copy
// is 0.
cudaError_t ScaledCopy(const ScaledCopyShape& shape, const float* x,
                       const float* factor, float* out, cudaStream_t stream);

// *spoils: whether an example with the factor 0 has an element in x that is not
// finite. A product with a copy from above would be NaN there.
cudaError_t FindSpoilers(const ScaledCopyShape& shape, const float* x,
                         const float* factor, void* workspace, int32_t* spoils,
                         cudaStream_t stream);
int64_t FindSpoilersWorkspaceBytes(const ScaledCopyShape& shape);

// to = from, if *wanted is not 0.
cudaError_t CopyIf(const int32_t* wanted, int64_t size, const float* from,
                   float* to, cudaStream_t stream);

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_SCALED_COPY_H_
