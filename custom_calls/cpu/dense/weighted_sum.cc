#include "custom_calls/cpu/dense/weighted_sum.h"

#include <algorithm>
#include <vector>

#include "custom_calls/cpu/float_environment.h"
#include "custom_calls/cpu/live.h"
#include "custom_calls/cpu/tiling.h"

namespace bk {
namespace {

// Elements of the result that stay in L1: 8 or 16 KB.
constexpr int64_t kChunk = 2048;

// An element of a large array costs about as much as so many flop.
constexpr double kFlopsPerElement = 32;

}  // namespace

template <class T>
void WeightedSum(const CpuKernels& kernels, Parallel& parallel,
                 const WeightedSumShape& shape, const Accumulator<T>* factor,
                 const T* x, Accumulator<T>* out) {
  using Acc = Accumulator<T>;
  const std::vector<LiveExample<Acc>> live = FindLive(shape.batch, factor);
  if (live.empty()) {
    std::fill_n(out, shape.size, Acc{0});
    return;
  }
  const SumTask<T> task = {x, live.data(), static_cast<int64_t>(live.size()),
                           shape.size, out};
  const double flops =
      kFlopsPerElement *
      static_cast<double>(task.live_count * std::min(shape.size, kChunk));
  const auto body = [&](int64_t begin, int64_t end) {
    const ScopedFloatEnvironment environment;
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      KernelsFor<T>(kernels).weighted_sum_chunk(
          task, chunk * kChunk, std::min((chunk + 1) * kChunk, shape.size));
    }
  };
  parallel.For(CeilDiv(shape.size, kChunk), flops, body);
}

template void WeightedSum(const CpuKernels&, Parallel&, const WeightedSumShape&,
                          const float*, const float*, float*);
template void WeightedSum(const CpuKernels&, Parallel&, const WeightedSumShape&,
                          const float*, const BFloat16*, float*);
template void WeightedSum(const CpuKernels&, Parallel&, const WeightedSumShape&,
                          const float*, const Float16*, float*);
template void WeightedSum(const CpuKernels&, Parallel&, const WeightedSumShape&,
                          const double*, const double*, double*);

}  // namespace bk
