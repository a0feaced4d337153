// Squared norms of per-example gradients of a table that is looked up, on a
// GPU.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_EMBEDDING_NORM_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_EMBEDDING_NORM_H_

#include "custom_calls/cuda/runtime.h"
#include "custom_calls/element.h"
#include "custom_calls/shapes.h"

namespace bk::cuda {

// 16 bytes per token for sorting, and one partial sum per 128 columns.
int64_t EmbeddingNormWorkspaceBytes(const LookupShape& shape);

// sq_norm[i] = sum over ids v of |sum of g[i, t] with ids[i, t] = v|^2, and
// sq_norm_upper[i], which is not below the exact value: the table of
// cpu/sparse/embedding_norm.h. The workspace is aligned to 8 bytes.
template <class T>
cudaError_t EmbeddingNorm(const LookupShape& shape, const int32_t* ids,
                          const T* g, Accumulator<T>* sq_norm,
                          Accumulator<T>* sq_norm_upper, void* workspace,
                          cudaStream_t stream);

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_EMBEDDING_NORM_H_
