// The tiles of direct_norm.cu, stored.
#include "custom_calls/certified.h"
#include "custom_calls/cuda/direct_norm.h"
#include "custom_calls/cuda/per_sample_grad.h"
#include "custom_calls/cuda/platform.cuh"
#include "custom_calls/cuda/reduce.cuh"

namespace bk::cuda {
namespace {

constexpr int kFinishThreads = 128;
// Of the squares of a tile: 32 of a thread, then those of a block.
constexpr int64_t kTileRoundings = 48;

// One warp for each example. Squares are exact in double for all but double
// inputs, so only additions round.
template <class Acc>
__global__ void __launch_bounds__(kFinishThreads)
    FinishKernel(int64_t batch, int64_t tiles, double roundings,
                 const double* squares, Acc* sq_norm, Acc* sq_norm_upper) {
  constexpr int64_t kWarps = kFinishThreads / 32;
  for (int64_t i = blockIdx.x * kWarps + threadIdx.x / 32; i < batch;
       i += gridDim.x * kWarps) {
    double sum = 0;
    for (int64_t k = threadIdx.x % 32; k < tiles; k += 32) {
      sum += squares[i * tiles + k];
    }
    sum = WarpSum(sum);
    if (threadIdx.x % 32 != 0) continue;
    StoreCertified(ComputedNorm{sum, 0, roundings, sum == 0}, sq_norm + i,
                   sq_norm_upper + i);
  }
}

}  // namespace

int64_t PerSampleGradWorkspaceBytes(const DenseShape& shape) {
  return shape.batch * shape.weights * ProductTileCount(shape) *
         static_cast<int64_t>(sizeof(double));
}

template <class T>
cudaError_t PerSampleGrad(const DenseShape& shape, const T* a, const T* g,
                          void* workspace, Accumulator<T>* grad,
                          Accumulator<T>* sq_norm,
                          Accumulator<T>* sq_norm_upper, cudaStream_t stream) {
  auto* squares = static_cast<double*>(workspace);
  const int64_t tiles = ProductTileCount(shape);
  BK_RETURN_IF_CUDA_ERROR(ProductSquares(shape, a, g,
                                         static_cast<const int32_t*>(nullptr),
                                         squares, grad, stream));
  const auto roundings =
      static_cast<double>(kTileRoundings + shape.weights * tiles);
  return Launch(FinishKernel<Accumulator<T>>, CeilDiv(shape.batch, 4),
                kFinishThreads, stream, shape.batch, shape.weights * tiles,
                roundings, squares, sq_norm, sq_norm_upper);
}

#define BK_INSTANTIATE(T)                                                     \
  template cudaError_t PerSampleGrad(const DenseShape&, const T*, const T*,   \
                                     void*, Accumulator<T>*, Accumulator<T>*, \
                                     Accumulator<T>*, cudaStream_t);
BK_INSTANTIATE(float)
BK_INSTANTIATE(BFloat16)
BK_INSTANTIATE(Float16)
BK_INSTANTIATE(double)

}  // namespace bk::cuda
