// From certified squared norms to clip factors, on a GPU.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_CLIP_FACTOR_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_CLIP_FACTOR_H_

#include "custom_calls/clipping.h"
#include "custom_calls/cuda/runtime.h"
#include "custom_calls/shapes.h"

namespace bk::cuda {

// norm[i] = sqrt(sum_k sq_norms[k, i]), rounded up, and factor[i] by
// `clipping`, rounded down: the same bits as on the CPU, see
// cpu/dense/clip_factor.h. `clip_norm` points to one number in device memory.
// Real is float or double.
template <class Real>
cudaError_t ClipFactor(const ClipFactorShape& shape, Clipping clipping,
                       const Real* sq_norms, const Real* clip_norm,
                       const bool* is_padding, Real* factor, Real* norm,
                       cudaStream_t stream);

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_CLIP_FACTOR_H_
