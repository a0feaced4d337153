// One thread for each element of the sum: neighbours read neighbours.
#include "custom_calls/cuda/element.cuh"
#include "custom_calls/cuda/platform.cuh"
#include "custom_calls/cuda/weighted_sum.h"

namespace bk::cuda {
namespace {

constexpr int kThreads = 256;
// Loads in flight per thread. The sum is still in the order of the examples.
constexpr int kUnroll = 4;

template <class T>
__global__ void __launch_bounds__(kThreads)
    WeightedSumKernel(WeightedSumShape shape, const Accumulator<T>* factor,
                      const T* x, Accumulator<T>* out) {
  using Acc = Accumulator<T>;
  const int64_t chunks = CeilDiv(shape.size, kThreads);
  for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const int64_t k = chunk * kThreads + threadIdx.x;
    if (k >= shape.size) continue;
    Acc sum = 0;
    for (int64_t first = 0; first < shape.batch; first += kUnroll) {
      Acc weight[kUnroll], value[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int64_t i = first + u;
        weight[u] = i < shape.batch ? factor[i] : Acc{0};
        value[u] =
            weight[u] != 0 ? ToAccumulator(x[i * shape.size + k]) : Acc{0};
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) sum = Fma(weight[u], value[u], sum);
    }
    out[k] = sum;
  }
}

}  // namespace

template <class T>
cudaError_t WeightedSum(const WeightedSumShape& shape,
                        const Accumulator<T>* factor, const T* x,
                        Accumulator<T>* out, cudaStream_t stream) {
  return Launch(WeightedSumKernel<T>, CeilDiv(shape.size, kThreads), kThreads,
                stream, shape, factor, x, out);
}

template cudaError_t WeightedSum(const WeightedSumShape&, const float*,
                                 const float*, float*, cudaStream_t);
template cudaError_t WeightedSum(const WeightedSumShape&, const float*,
                                 const BFloat16*, float*, cudaStream_t);
template cudaError_t WeightedSum(const WeightedSumShape&, const float*,
                                 const Float16*, float*, cudaStream_t);
template cudaError_t WeightedSum(const WeightedSumShape&, const double*,
                                 const double*, double*, cudaStream_t);

}  // namespace bk::cuda
