// The clipped sum of per-example gradients of a table that is looked up, on a
// GPU.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_CLIPPED_SCATTER_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_CLIPPED_SCATTER_H_

#include "custom_calls/cuda/runtime.h"
#include "custom_calls/element.h"
#include "custom_calls/shapes.h"

namespace bk::cuda {

// 16 bytes per token, for sorting.
int64_t ClippedScatterWorkspaceBytes(const LookupShape& shape);

// sum[ids[i, t]] += factor[i] * g[i, t], in place: the table of
// cpu/sparse/clipped_scatter.h. A row adds its tokens in the order of the
// batch. The workspace is aligned to 8 bytes.
template <class T>
cudaError_t ClippedScatter(const LookupShape& shape, const int32_t* ids,
                           const Accumulator<T>* factor, const T* g,
                           Accumulator<T>* sum, void* workspace,
                           cudaStream_t stream);

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_CLIPPED_SCATTER_H_
