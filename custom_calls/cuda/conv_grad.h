// Gradients of convolution kernels on a GPU: norms of every example's, the
// gradients themselves, and their clipped sum. None forms patches of the image.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_CONV_GRAD_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_CONV_GRAD_H_

#include "custom_calls/cuda/runtime.h"
#include "custom_calls/element.h"
#include "custom_calls/shapes.h"

namespace bk::cuda {

// For ConvNorm and ConvGrad: one partial sum per example and tile.
int64_t ConvNormWorkspaceBytes(const ConvShape& shape);
// For ConvSum: sums of slices of the batch, in double; less than 40 MB, or one
// slice.
int64_t ConvSumWorkspaceBytes(const ConvShape& shape);

// With the gradient G_i of the kernel for example i, the table of
// cpu/conv/conv_grad.h:
//
//   ConvNorm   sq_norm[i] ~ |G_i|^2, and a bound that is not below it
//   ConvGrad   grad[i] = G_i, and both for grad[i] as it was stored
//   ConvSum    sum = sum_i factor[i] * G_i; factor 0: the example is not read
//
// The workspace is aligned to 8 bytes.
template <class T>
cudaError_t ConvNorm(const ConvShape& shape, const T* x, const T* g,
                     Accumulator<T>* sq_norm, Accumulator<T>* sq_norm_upper,
                     void* workspace, cudaStream_t stream);

template <class T>
cudaError_t ConvGrad(const ConvShape& shape, const T* x, const T* g,
                     Accumulator<T>* grad, Accumulator<T>* sq_norm,
                     Accumulator<T>* sq_norm_upper, void* workspace,
                     cudaStream_t stream);

template <class T>
cudaError_t ConvSum(const ConvShape& shape, const T* x,
                    const Accumulator<T>* factor, const T* g,
                    Accumulator<T>* sum, void* workspace, cudaStream_t stream);

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_CONV_GRAD_H_
