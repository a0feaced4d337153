// Per-example gradients and their squared norms in one pass, on a GPU.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_PER_SAMPLE_GRAD_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_PER_SAMPLE_GRAD_H_

#include <cstdint>

#include "custom_calls/cuda/runtime.h"
#include "custom_calls/element.h"
#include "custom_calls/shapes.h"

namespace bk::cuda {

// grad[i,n] = a[i,n]^T g[i,n], [B, N, d, p], and the squared norms of these
// very numbers: an estimate and an upper bound.
template <class T>
cudaError_t PerSampleGrad(const DenseShape& shape, const T* a, const T* g,
                          void* workspace, Accumulator<T>* grad,
                          Accumulator<T>* sq_norm,
                          Accumulator<T>* sq_norm_upper, cudaStream_t stream);

int64_t PerSampleGradWorkspaceBytes(const DenseShape& shape);

// The norms alone, of gradients [B, N, d, p] that something else has made.
cudaError_t StoredNorms(const DenseShape& shape, const float* grad,
                        void* workspace, float* sq_norm, float* sq_norm_upper,
                        cudaStream_t stream);
int64_t StoredNormsWorkspaceBytes(const DenseShape& shape);

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_PER_SAMPLE_GRAD_H_
