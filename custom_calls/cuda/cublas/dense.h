// Gradients and clipped sums of dense layers whose products cublasLt makes.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_CUBLAS_DENSE_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_CUBLAS_DENSE_H_

#include <cstdint>

#include "custom_calls/cuda/cublas/product.h"
#include "custom_calls/cuda/runtime.h"
#include "custom_calls/element.h"
#include "custom_calls/shapes.h"

namespace bk::cuda {

// The first error of the two libraries.
struct LibraryStatus {
  cudaError_t cuda;
  cublasStatus_t cublas;
};

// Sums of float32: out[n] (+)= sum_i factor[i] * lhs[i,n]^T rhs[i,n].
//
// The smaller operand is copied with its factors. The other one is read as it
// is, also the rows of examples with the factor 0: if one of these is not
// finite, our own kernels make the sum instead, which only the device knows.
struct LibrarySum {
  ClippedGemmShape shape;
  bool tf32;
  bool accumulate;
};
bool CanSum(const LibrarySum& sum);
// Whether there is a library or not, so that a program can be compiled without.
int64_t SumWorkspaceBytes(const LibrarySum& sum);
LibraryStatus Sum(const LibrarySum& sum, const float* lhs, const float* factor,
                  const float* rhs, void* workspace, float* out,
                  cudaStream_t stream);

// Per-example gradients in float32 and the squared norms of these very numbers.
struct LibraryGradients {
  DenseShape shape;
  ProductElement element;
};
bool CanMakeGradients(const LibraryGradients& gradients);
int64_t GradientsWorkspaceBytes(const LibraryGradients& gradients);
LibraryStatus MakeGradients(const LibraryGradients& gradients, const void* a,
                            const void* g, void* workspace, float* grad,
                            float* sq_norm, float* sq_norm_upper,
                            cudaStream_t stream);

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_CUBLAS_DENSE_H_
