// The tiles of direct_norm.cu, stored; or norms of gradients that are stored
// already, in parts of as many elements as a tile has.
#include "custom_calls/certified.h"
#include "custom_calls/cuda/direct_norm.h"
#include "custom_calls/cuda/per_sample_grad.h"
#include "custom_calls/cuda/platform.cuh"
#include "custom_calls/cuda/reduce.cuh"
#include "custom_calls/cuda/squares.cuh"

namespace bk::cuda {
namespace {

constexpr int kFinishThreads = 128;
// Of the squares of a tile: at most 64 of a thread, then those of a block.
constexpr int64_t kTileRoundings = 80;
constexpr int kOwn = 32;  // elements of a thread
constexpr int64_t kPart = int64_t{kFinishThreads} * kOwn;

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

struct PartShared {
  double scratch[kFinishThreads / 32];
};

// squares [B, parts] of grad [B, size].
__global__ void __launch_bounds__(kFinishThreads)
    SquaresKernel(int64_t batch, int64_t size, const float* grad,
                  double* squares) {
  BK_SHARED(PartShared, shared);
  const int64_t parts = CeilDiv(size, kPart);
  for (int64_t item = blockIdx.x; item < batch * parts; item += gridDim.x) {
    const float* first = grad + item / parts * size;
    const int64_t begin = item % parts * kPart + threadIdx.x;
    float own[kOwn];
#pragma unroll
    for (int e = 0; e < kOwn; ++e) {
      const int64_t k = begin + int64_t{e} * kFinishThreads;
      own[e] = k < size ? first[k] : 0;
    }
    const double total = BlockSum(Squares(own), shared.scratch);
    if (threadIdx.x == 0) squares[item] = total;
    __syncthreads();
  }
}

int64_t GradSize(const DenseShape& s) { return s.weights * s.d * s.p; }

// From sums of squares [B, parts] to norms.
template <class Acc>
cudaError_t Finish(int64_t batch, int64_t parts, const double* squares,
                   Acc* sq_norm, Acc* sq_norm_upper, cudaStream_t stream) {
  return Launch(FinishKernel<Acc>, CeilDiv(batch, 4), kFinishThreads, stream,
                batch, parts, static_cast<double>(kTileRoundings + parts),
                squares, sq_norm, sq_norm_upper);
}

}  // namespace

int64_t StoredNormsWorkspaceBytes(const DenseShape& shape) {
  return shape.batch * CeilDiv(GradSize(shape), kPart) *
         static_cast<int64_t>(sizeof(double));
}

cudaError_t StoredNorms(const DenseShape& shape, const float* grad,
                        void* workspace, float* sq_norm, float* sq_norm_upper,
                        cudaStream_t stream) {
  auto* squares = static_cast<double*>(workspace);
  const int64_t parts = CeilDiv(GradSize(shape), kPart);
  BK_RETURN_IF_CUDA_ERROR(Launch(SquaresKernel, shape.batch * parts,
                                 kFinishThreads, stream, shape.batch,
                                 GradSize(shape), grad, squares));
  return Finish(shape.batch, parts, squares, sq_norm, sq_norm_upper, stream);
}

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
  const int64_t tiles = ProductTileCount(shape, sizeof(T));
  BK_RETURN_IF_CUDA_ERROR(ProductSquares(shape,
                                         LayerPairs<T>(shape.weights, a, g),
                                         ExampleList(), squares, grad, stream));
  return Finish(shape.batch, shape.weights * tiles, squares, sq_norm,
                sq_norm_upper, stream);
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
