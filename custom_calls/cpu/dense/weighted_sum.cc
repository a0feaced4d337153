#include "custom_calls/cpu/dense/weighted_sum.h"

#include <algorithm>

#include "custom_calls/cpu/float_environment.h"
#include "custom_calls/cpu/live.h"
#include "custom_calls/cpu/pieces.h"

namespace bk {
namespace {

// Elements of the result that stay in L1: 8 or 16 KB.
constexpr int64_t kChunk = 2048;

// An element of a large array costs about as much as so many flop.
constexpr double kFlopsPerElement = 32;

}  // namespace

template <class T>
void WeightedSums(const CpuKernels& kernels, Parallel& parallel, int64_t batch,
                  const Accumulator<T>* factor,
                  const std::vector<SumArray<T>>& arrays) {
  using Acc = Accumulator<T>;
  const std::vector<LiveExample<Acc>> live = FindLive(batch, factor);
  const auto live_count = static_cast<int64_t>(live.size());
  if (live.empty()) {
    for (const auto& array : arrays) std::fill_n(array.out, array.size, Acc{0});
    return;
  }
  const Pieces pieces(arrays, kChunk);
  const double flops =
      kFlopsPerElement * static_cast<double>(live_count) * pieces.MeanSize();
  const auto body = [&](int64_t begin, int64_t end) {
    const ScopedFloatEnvironment environment;
    for (int64_t item = begin; item < end; ++item) {
      const Piece piece = pieces[item];
      const auto& [x, size, out] = arrays[piece.array];
      const SumTask<T> task = {x, live.data(), live_count, size, out};
      KernelsFor<T>(kernels).weighted_sum_chunk(task, piece.begin, piece.end);
    }
  };
  parallel.For(pieces.Count(), flops, body);
}

template void WeightedSums(const CpuKernels&, Parallel&, int64_t, const float*,
                           const std::vector<SumArray<float>>&);
template void WeightedSums(const CpuKernels&, Parallel&, int64_t, const float*,
                           const std::vector<SumArray<BFloat16>>&);
template void WeightedSums(const CpuKernels&, Parallel&, int64_t, const float*,
                           const std::vector<SumArray<Float16>>&);
template void WeightedSums(const CpuKernels&, Parallel&, int64_t, const double*,
                           const std::vector<SumArray<double>>&);

}  // namespace bk
