// The sum of clipped gradients of a dense layer, on a GPU.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_CLIPPED_GEMM_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_CLIPPED_GEMM_H_

#include <cstdint>

#include "custom_calls/cuda/layers.h"
#include "custom_calls/cuda/runtime.h"
#include "custom_calls/element.h"
#include "custom_calls/shapes.h"

namespace bk::cuda {

// out[n] = sum_i factor[i] * lhs[i,n]^T rhs[i,n], added to what is there if
// `accumulate`. An example whose factor is 0 is not read. With `only_if`, a
// number on the device, nothing happens where that is 0.
template <class T>
cudaError_t ClippedGemm(const ClippedGemmShape& shape, const T* lhs,
                        const Accumulator<T>* factor, const T* rhs,
                        bool accumulate, void* workspace, Accumulator<T>* out,
                        cudaStream_t stream, const int32_t* only_if = nullptr);

// The same for layers of one shape, `shape` of each: out[l] for each of them.
template <class T>
cudaError_t ClippedGemms(const ClippedGemmShape& shape,
                         const LayerPairs<T>& layers,
                         const Accumulator<T>* factor, bool accumulate,
                         void* workspace, Accumulator<T>* const* out,
                         cudaStream_t stream, const int32_t* only_if = nullptr);

int64_t ClippedGemmWorkspaceBytes(const ClippedGemmShape& shape,
                                  int64_t accumulator_bytes,
                                  int64_t layers = 1);

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_CLIPPED_GEMM_H_
