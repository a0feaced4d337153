// Launchers of convolutions, and the kernels that finish: norms of examples
// from the partial sums of their tiles, clipped sums from those of slices.
#include "custom_calls/certified.h"
#include "custom_calls/cuda/conv_depthwise.cuh"
#include "custom_calls/cuda/conv_grad.h"
#include "custom_calls/cuda/conv_tile.cuh"
#include "custom_calls/cuda/platform.cuh"
#include "custom_calls/cuda/reduce.cuh"

namespace bk::cuda {
namespace {

constexpr int kFinishThreads = 128;
// A clipped sum has at least this many tasks if there are examples enough: four
// for each multiprocessor of the largest GPU. A constant, because the order of
// the sums must not depend on the device.
constexpr int64_t kSumTasks = 512;

int64_t TilesOf(const ConvShape& s) {
  return IsDepthwise(s) ? DepthwiseTiles(s) : ConvTilesOf(s).Count();
}

int64_t SumSlices(const ConvShape& s) {
  const int64_t tiles = TilesOf(s);
  const int64_t wanted = tiles == 0 ? 1 : CeilDiv(kSumTasks, tiles);
  return wanted < s.batch ? wanted : s.batch;
}

// gamma such that the computed gradient errs by at most gamma S in norm, S^2
// the sum of the bounds of tiles: an entry errs by at most gamma_c sum_t |x_t|
// |g_t|
// <= gamma_c sqrt(sum_t x_t^2 sum_t g_t^2), with at most kChain roundings of
// the accumulator type; one more u covers gradual underflow (WithSmallest), the
// rest is double. 2 % cover gamma_c - c u and the rounding of S.
template <class Acc>
double RelativeError(const ConvShape& s) {
  const auto pixels = static_cast<double>(s.images * Volume(s.out));
  return 1.02 * ((kChain + 2) * kUnitRoundoff<Acc> +
                 (pixels + 16) * kUnitRoundoff<double>);
}

struct FinishShared {
  double scratch[3][kFinishThreads / 32];
};

// One block per example. gamma is 0 for gradients that were stored.
template <class Acc>
__global__ void __launch_bounds__(kFinishThreads)
    NormKernel(int64_t batch, int64_t tiles, double gamma,
               const ConvPartial* partials, Acc* sq_norm, Acc* sq_norm_upper) {
  BK_SHARED(FinishShared, shared);
  for (int64_t i = blockIdx.x; i < batch; i += gridDim.x) {
    ConvPartial own = {0, 0, 0};
    for (int64_t k = threadIdx.x; k < tiles; k += kFinishThreads) {
      const ConvPartial& partial = partials[i * tiles + k];
      own.squares += partial.squares;
      own.bound += partial.bound;
      own.nonzero += partial.nonzero;
    }
    const double squares = BlockSum(own.squares, shared.scratch[0]);
    const double bound = BlockSum(own.bound, shared.scratch[1]);
    const double nonzero = BlockSum(own.nonzero, shared.scratch[2]);
    if (threadIdx.x == 0) {
      const double error = gamma == 0 ? 0 : gamma * sqrt(bound);
      // 16 entries of a thread, its block, this thread's tiles, this block.
      const auto roundings = static_cast<double>(tiles + 64);
      StoreCertified<Acc>({squares, error, roundings, nonzero == 0},
                          sq_norm + i, sq_norm_upper + i);
    }
    __syncthreads();
  }
}

template <class Acc>
__global__ void __launch_bounds__(kFinishThreads)
    SumKernel(int64_t slices, int64_t size, const double* sums, Acc* sum) {
  for (int64_t chunk = blockIdx.x; chunk * kFinishThreads < size;
       chunk += gridDim.x) {
    const int64_t n = chunk * kFinishThreads + threadIdx.x;
    if (n >= size) continue;
    double total = 0;
    for (int64_t slice = 0; slice < slices; ++slice) {
      total += sums[slice * size + n];
    }
    sum[n] = static_cast<Acc>(total);
  }
}

template <class T>
cudaError_t RunTiles(const ConvTask<T>& task, cudaStream_t stream) {
  const int64_t items = task.slices * TilesOf(task.shape);
  if (IsDepthwise(task.shape)) {
    return Launch(ConvDepthwiseKernel<T>, items, kChannels, stream, task);
  }
  return Launch(ConvTileKernel<T>, items, kFmaThreads, stream, task);
}

template <class T>
cudaError_t Norms(const ConvShape& shape, const T* x, const T* g,
                  Accumulator<T>* grad, Accumulator<T>* sq_norm,
                  Accumulator<T>* sq_norm_upper, void* workspace,
                  cudaStream_t stream) {
  using Acc = Accumulator<T>;
  auto* partials = static_cast<ConvPartial*>(workspace);
  BK_RETURN_IF_CUDA_ERROR(RunTiles<T>(
      {shape, shape.batch, x, g, nullptr, nullptr, grad, partials}, stream));
  const double gamma = grad == nullptr ? RelativeError<Acc>(shape) : 0;
  return Launch(NormKernel<Acc>, shape.batch, kFinishThreads, stream,
                shape.batch, TilesOf(shape), gamma, partials, sq_norm,
                sq_norm_upper);
}

}  // namespace

int64_t ConvNormWorkspaceBytes(const ConvShape& shape) {
  return shape.batch * TilesOf(shape) * int64_t{sizeof(ConvPartial)};
}

int64_t ConvSumWorkspaceBytes(const ConvShape& shape) {
  return SumSlices(shape) * KernelSize(shape) * int64_t{sizeof(double)};
}

template <class T>
cudaError_t ConvNorm(const ConvShape& shape, const T* x, const T* g,
                     Accumulator<T>* sq_norm, Accumulator<T>* sq_norm_upper,
                     void* workspace, cudaStream_t stream) {
  return Norms<T>(shape, x, g, nullptr, sq_norm, sq_norm_upper, workspace,
                  stream);
}

template <class T>
cudaError_t ConvGrad(const ConvShape& shape, const T* x, const T* g,
                     Accumulator<T>* grad, Accumulator<T>* sq_norm,
                     Accumulator<T>* sq_norm_upper, void* workspace,
                     cudaStream_t stream) {
  return Norms<T>(shape, x, g, grad, sq_norm, sq_norm_upper, workspace, stream);
}

template <class T>
cudaError_t ConvSum(const ConvShape& shape, const T* x,
                    const Accumulator<T>* factor, const T* g,
                    Accumulator<T>* sum, void* workspace, cudaStream_t stream) {
  const int64_t slices = SumSlices(shape);
  const int64_t size = KernelSize(shape);
  auto* sums = static_cast<double*>(workspace);
  BK_RETURN_IF_CUDA_ERROR(RunTiles<T>(
      {shape, slices, x, g, factor, sums, nullptr, nullptr}, stream));
  return Launch(SumKernel<Accumulator<T>>, CeilDiv(size, kFinishThreads),
                kFinishThreads, stream, slices, size, sums, sum);
}

#define BK_INSTANTIATE(T)                                                \
  template cudaError_t ConvNorm(const ConvShape&, const T*, const T*,    \
                                Accumulator<T>*, Accumulator<T>*, void*, \
                                cudaStream_t);                           \
  template cudaError_t ConvGrad(const ConvShape&, const T*, const T*,    \
                                Accumulator<T>*, Accumulator<T>*,        \
                                Accumulator<T>*, void*, cudaStream_t);   \
  template cudaError_t ConvSum(const ConvShape&, const T*,               \
                               const Accumulator<T>*, const T*,          \
                               Accumulator<T>*, void*, cudaStream_t)
BK_INSTANTIATE(float);
BK_INSTANTIATE(BFloat16);
BK_INSTANTIATE(Float16);
BK_INSTANTIATE(double);
#undef BK_INSTANTIATE

}  // namespace bk::cuda
