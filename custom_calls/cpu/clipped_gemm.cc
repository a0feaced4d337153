#include "custom_calls/cpu/clipped_gemm.h"

#include <algorithm>
#include <vector>

#include "custom_calls/cpu/float_environment.h"
#include "custom_calls/cpu/scratch.h"

namespace bk {
namespace {

int64_t CeilDiv(int64_t x, int64_t y) { return (x + y - 1) / y; }

template <class Acc>
std::vector<LiveExample<Acc>> FindLive(int64_t batch, const Acc* factor) {
  std::vector<LiveExample<Acc>> live;
  live.reserve(batch);
  for (int64_t i = 0; i < batch; ++i) {
    if (factor[i] != 0) live.push_back({i, factor[i]});
  }
  return live;
}

// Narrows the task of the whole result to tile `item` of all weights' tiles.
template <class T>
GemmTask<T> TileTask(const GemmTask<T>& whole, int64_t item) {
  const int64_t column_tiles = CeilDiv(whole.n, kGemmColumns);
  const int64_t row_tiles = CeilDiv(whole.m, kGemmRows);
  GemmTask<T> task = whole;
  task.n0 = item % column_tiles * kGemmColumns;
  task.n1 = std::min(task.n0 + kGemmColumns, whole.n);
  task.m0 = item / column_tiles % row_tiles * kGemmRows;
  task.m1 = std::min(task.m0 + kGemmRows, whole.m);
  task.weight = item / column_tiles / row_tiles;
  task.out = whole.out + task.weight * whole.m * whole.n;
  return task;
}

}  // namespace

template <class T>
void ClippedGemm(const CpuKernels& kernels, Parallel& parallel,
                 const ClippedGemmShape& shape, const T* lhs,
                 const Accumulator<T>* factor, const T* rhs,
                 Accumulator<T>* out) {
  using Acc = Accumulator<T>;
  const std::vector<LiveExample<Acc>> live = FindLive(shape.batch, factor);
  const auto live_count = static_cast<int64_t>(live.size());
  if (live_count == 0 || shape.positions == 0) {
    std::fill_n(out, shape.weights * shape.m * shape.n, Acc{0});
    return;
  }
  const GemmTask<T> whole = {lhs,
                             rhs,
                             live.data(),
                             live_count,
                             0,
                             shape.weights,
                             shape.positions,
                             shape.m,
                             shape.n,
                             0,
                             shape.m,
                             0,
                             shape.n,
                             out};
  const int64_t tiles = shape.weights * CeilDiv(shape.m, kGemmRows) *
                        CeilDiv(shape.n, kGemmColumns);
  const double flops = 2.0 * static_cast<double>(live_count * shape.positions) *
                       static_cast<double>(std::min(shape.m, kGemmRows) *
                                           std::min(shape.n, kGemmColumns));
  parallel.For(tiles, flops, [&](int64_t begin, int64_t end) {
    const ScopedFloatEnvironment environment;
    Acc* scratch = ThreadScratchOf<Acc>(kGemmScratch);
    for (int64_t item = begin; item < end; ++item) {
      KernelsFor<T>(kernels).clipped_gemm_tile(TileTask(whole, item), scratch);
    }
  });
}

template void ClippedGemm(const CpuKernels&, Parallel&, const ClippedGemmShape&,
                          const float*, const float*, const float*, float*);
template void ClippedGemm(const CpuKernels&, Parallel&, const ClippedGemmShape&,
                          const BFloat16*, const float*, const BFloat16*,
                          float*);
template void ClippedGemm(const CpuKernels&, Parallel&, const ClippedGemmShape&,
                          const Float16*, const float*, const Float16*, float*);
template void ClippedGemm(const CpuKernels&, Parallel&, const ClippedGemmShape&,
                          const double*, const double*, const double*, double*);

}  // namespace bk
