// The cross term of a table that is both multiplied by and looked up, on a GPU.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_TIED_CROSS_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_TIED_CROSS_H_

#include "custom_calls/cuda/runtime.h"
#include "custom_calls/element.h"
#include "custom_calls/shapes.h"

namespace bk::cuda {

// One number per row of right and g, two per 64 x 64 pairs of rows.
int64_t TiedCrossWorkspaceBytes(const TiedCrossShape& shape);

// cross[i] ~ sum_ts left[t, ids[s]] (right_t . g_s) of example i, and
// cross_upper[i], which is not below the exact value: the table of
// cpu/sparse/tied_cross.h. The workspace is aligned to 8 bytes.
template <class T>
cudaError_t TiedCross(const TiedCrossShape& shape, const T* left,
                      const T* right, const int32_t* ids, const T* g,
                      Accumulator<T>* cross, Accumulator<T>* cross_upper,
                      void* workspace, cudaStream_t stream);

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_TIED_CROSS_H_
