// Squared norms of per-example gradients, without the gradients, on a GPU.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_GHOST_NORM_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_GHOST_NORM_H_

#include <cstdint>

#include "custom_calls/cuda/layers.h"
#include "custom_calls/cuda/runtime.h"
#include "custom_calls/element.h"
#include "custom_calls/shapes.h"

namespace bk::cuda {

// sq_norm[i] ~ sum_n |a[i,n]^T g[i,n]|_F^2, computed as <a a^T, g g^T>, and
// sq_norm_upper[i], which is not below the exact value; the table of
// cpu/dense/ghost_norm.h holds. Where the bound is more than 1 % above the norm
// the gradient of that example is formed, as DirectNorm does: decided on the
// device, so nobody waits for it.
template <class T>
cudaError_t GhostNorm(const DenseShape& shape, const T* a, const T* g,
                      void* workspace, Accumulator<T>* sq_norm,
                      Accumulator<T>* sq_norm_upper, cudaStream_t stream);

// The same added up over layers of one shape, `shape` of each. Looseness is
// that of the sum.
template <class T>
cudaError_t GhostNorms(const DenseShape& shape, const LayerPairs<T>& layers,
                       void* workspace, Accumulator<T>* sq_norm,
                       Accumulator<T>* sq_norm_upper, cudaStream_t stream);

int64_t GhostNormWorkspaceBytes(const DenseShape& shape, int64_t layers = 1);

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_GHOST_NORM_H_
