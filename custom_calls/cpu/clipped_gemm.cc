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

// The largest multiple of kStep, at most `limit`, that cuts `size` into equal
// parts (up to kStep).
int64_t EvenPart(int64_t size, int64_t limit) {
  constexpr int64_t kStep = 48;
  const int64_t parts = CeilDiv(std::max<int64_t>(size, 1), limit);
  return CeilDiv(CeilDiv(size, parts), kStep) * kStep;
}

// How the results of all weights are cut into tasks. A pure function of the
// shape: large tiles, as packing is paid once per tile, but smaller ones as
// long as there are too few to keep several threads equally busy.
struct Tiling {
  int64_t rows, columns, row_tiles, column_tiles;
};

Tiling ChooseTiling(int64_t weights, int64_t m, int64_t n) {
  constexpr int64_t kEnoughTasks = 16;
  constexpr int64_t limits[][2] = {{kGemmRows, kGemmColumns},
                                   {kGemmRows, kGemmColumns / 2},
                                   {kGemmRows / 2, kGemmColumns / 2},
                                   {kGemmRows / 2, kGemmColumns / 4},
                                   {kGemmRows / 4, kGemmColumns / 8}};
  Tiling tiling = {};
  for (const auto& limit : limits) {
    const int64_t rows = EvenPart(m, limit[0]);
    const int64_t columns = EvenPart(n, limit[1]);
    tiling = {rows, columns, CeilDiv(m, rows), CeilDiv(n, columns)};
    const int64_t tasks = weights * tiling.row_tiles * tiling.column_tiles;
    if (tasks >= kEnoughTasks) break;
  }
  return tiling;
}

// Narrows the task of the whole result to tile `item` of all weights' tiles.
template <class T>
GemmTask<T> TileTask(const GemmTask<T>& whole, const Tiling& tiling,
                     int64_t item) {
  GemmTask<T> task = whole;
  task.n0 = item % tiling.column_tiles * tiling.columns;
  task.n1 = std::min(task.n0 + tiling.columns, whole.n);
  task.m0 = item / tiling.column_tiles % tiling.row_tiles * tiling.rows;
  task.m1 = std::min(task.m0 + tiling.rows, whole.m);
  task.weight = item / tiling.column_tiles / tiling.row_tiles;
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
  const Tiling tiling = ChooseTiling(shape.weights, shape.m, shape.n);
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
                             out,
                             accumulate};
  const double flops = 2.0 * static_cast<double>(live_count * shape.positions) *
                       static_cast<double>(std::min(shape.m, tiling.rows) *
                                           std::min(shape.n, tiling.columns));
  const int64_t tiles = shape.weights * tiling.row_tiles * tiling.column_tiles;
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
