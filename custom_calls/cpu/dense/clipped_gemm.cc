#include "custom_calls/cpu/dense/clipped_gemm.h"

#include <algorithm>
#include <vector>

#include "custom_calls/cpu/float_environment.h"
#include "custom_calls/cpu/live.h"
#include "custom_calls/cpu/scratch.h"
#include "custom_calls/cpu/tiling.h"

namespace bk {
namespace {

// Narrows the task of the whole result to tile `item` of all weights' tiles.
template <class T>
GemmTask<T> TileTask(const GemmTask<T>& whole, const Tiling& tiling,
                     int64_t item) {
  GemmTask<T> task = whole;
  task.tile = TileAt(tiling, whole.m, whole.n, item % tiling.Tiles());
  task.weight = item / tiling.Tiles();
  task.out = whole.out + task.weight * whole.m * whole.n;
  return task;
}

}  // namespace

template <class T>
void ClippedGemm(const CpuKernels& kernels, Parallel& parallel,
                 const ClippedGemmShape& shape, const T* lhs,
                 const Accumulator<T>* factor, const T* rhs,
                 Accumulator<T>* out, GemmOutput output) {
  using Acc = Accumulator<T>;
  const std::vector<LiveExample<Acc>> live = FindLive(shape.batch, factor);
  const auto live_count = static_cast<int64_t>(live.size());
  const bool accumulate = output == GemmOutput::kAccumulate;
  const int64_t entries = shape.weights * shape.m * shape.n;
  if (entries == 0) return;
  if (live_count == 0 || shape.positions == 0) {
    if (!accumulate) std::fill_n(out, entries, Acc{0});
    return;
  }
  const Tiling tiling =
      ChooseTiling(shape.weights, shape.m, shape.n, kGemmColumns,
                   kTilesPerThread * parallel.Threads());
  const GemmTask<T> whole = {.lhs = lhs,
                             .rhs = rhs,
                             .live = live.data(),
                             .live_count = live_count,
                             .weight = 0,
                             .weights = shape.weights,
                             .positions = shape.positions,
                             .m = shape.m,
                             .n = shape.n,
                             .tile = {0, shape.m, 0, shape.n},
                             .out = out,
                             .accumulate = accumulate};
  const double flops = 2.0 * static_cast<double>(live_count * shape.positions) *
                       static_cast<double>(std::min(shape.m, tiling.rows) *
                                           std::min(shape.n, tiling.columns));
  const int64_t tiles = shape.weights * tiling.Tiles();
  parallel.For(tiles, flops, [&](int64_t begin, int64_t end) {
    const ScopedFloatEnvironment environment;
    Acc* scratch = ThreadScratchOf<Acc>(kGemmScratch);
    for (int64_t item = begin; item < end; ++item) {
      KernelsFor<T>(kernels).clipped_gemm_tile(TileTask(whole, tiling, item),
                                               scratch);
    }
  });
}

template void ClippedGemm(const CpuKernels&, Parallel&, const ClippedGemmShape&,
                          const float*, const float*, const float*, float*,
                          GemmOutput);
template void ClippedGemm(const CpuKernels&, Parallel&, const ClippedGemmShape&,
                          const BFloat16*, const float*, const BFloat16*,
                          float*, GemmOutput);
template void ClippedGemm(const CpuKernels&, Parallel&, const ClippedGemmShape&,
                          const Float16*, const float*, const Float16*, float*,
                          GemmOutput);
template void ClippedGemm(const CpuKernels&, Parallel&, const ClippedGemmShape&,
                          const double*, const double*, const double*, double*,
                          GemmOutput);

}  // namespace bk
