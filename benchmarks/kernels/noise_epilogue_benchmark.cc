// Does it pay to add noise while the clipped gemm writes its result?
//
//   bazel run //benchmarks/kernels:noise_epilogue_benchmark
//
// Three orders of the same work, ten layers on two threads; the numbers are
// equal bit for bit:
//
//   at the end   all sums, then noise on all of them
//   after each   noise on a sum when it is whole
//   epilogue     noise on a band of rows as soon as its last tile is written,
//                by the thread that wrote it
//
// Rounds go through the three in turn; printed are medians, and the median of
// the ratio to "at the end" in the same round.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "custom_calls/cpu/dense/clipped_gemm.h"
#include "custom_calls/cpu/isa/dispatch.h"
#include "custom_calls/cpu/live.h"
#include "custom_calls/cpu/noise/gaussian.h"
#include "custom_calls/cpu/scratch.h"
#include "custom_calls/cpu/tiling.h"
#include "tests/xla_plugin/fake_schedulers.h"
#include "xla_plugin/parallel_for.h"

namespace bk {
namespace {

constexpr int kLayers = 10, kRounds = 41;
constexpr float kStddev = 0.5F;
constexpr NoiseStream kStream = {{1, 2, 3, 4, 5, 6, 7, 8}, 0, kNoiseDomain};

struct Layers {
  explicit Layers(const ClippedGemmShape& s)
      : shape(s),
        lhs(s.batch * s.positions * s.m),
        rhs(s.batch * s.positions * s.n),
        factor(s.batch, 0.5F),
        sums(kLayers, std::vector<float>(s.m * s.n)) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& x : lhs) x = normal(random);
    for (float& x : rhs) x = normal(random);
  }
  void Sum(Parallel& parallel, float* out) const {
    ClippedGemm(*ActiveKernels().kernels, parallel, shape, lhs.data(),
                factor.data(), rhs.data(), out);
  }
  void Noise(Parallel& parallel, float* out) const {
    const int64_t size = shape.m * shape.n;
    const int64_t start = 0;
    Gaussian(*ActiveKernels().kernels, parallel, kStream,
             {1, &size, &start, &size}, out, kStddev, out);
  }
  void SumWithNoise(Parallel& parallel, float* out) const;

  ClippedGemmShape shape;
  std::vector<float> lhs, rhs, factor;
  std::vector<std::vector<float>> sums;
};

// ClippedGemm, and noise on each band of rows when all its tiles are there.
void Layers::SumWithNoise(Parallel& parallel, float* out) const {
  const CpuKernels& kernels = *ActiveKernels().kernels;
  const std::vector<LiveExample<float>> live =
      FindLive(shape.batch, factor.data());
  const Tiling tiling =
      ChooseTiling(1, shape.m, shape.n, kGemmColumns, kEnoughTiles);
  const auto written = std::make_unique<std::atomic<int64_t>[]>(
      static_cast<size_t>(tiling.row_tiles));
  const auto run = [&](int64_t begin, int64_t end) {
    auto* scratch = ThreadScratchOf<float>(kGemmScratch);
    for (int64_t item = begin; item < end; ++item) {
      const Tile tile = TileAt(tiling, shape.m, shape.n, item);
      KernelsFor<float>(kernels).clipped_gemm_tile(
          {lhs.data(), rhs.data(), live.data(),
           static_cast<int64_t>(live.size()), 0, 1, shape.positions, shape.m,
           shape.n, tile, out, false},
          scratch);
      const int64_t band = item / tiling.column_tiles;
      if (written[band].fetch_add(1) + 1 < tiling.column_tiles) continue;
      const int64_t first = tile.m0 * shape.n;
      KernelsFor<float>(kernels).gaussian(
          {kStream, kStddev, static_cast<uint64_t>(first),
           (tile.m1 - tile.m0) * shape.n, out + first, out + first});
    }
  };
  parallel.For(tiling.Tiles(), 1e9, run);
}

using Order = std::function<void(Layers&, Parallel&)>;

void AtTheEnd(Layers& layers, Parallel& parallel) {
  for (auto& sum : layers.sums) layers.Sum(parallel, sum.data());
  for (auto& sum : layers.sums) layers.Noise(parallel, sum.data());
}

void AfterEach(Layers& layers, Parallel& parallel) {
  for (auto& sum : layers.sums) {
    layers.Sum(parallel, sum.data());
    layers.Noise(parallel, sum.data());
  }
}

void Epilogue(Layers& layers, Parallel& parallel) {
  for (auto& sum : layers.sums) layers.SumWithNoise(parallel, sum.data());
}

double Seconds(const Order& order, Layers& layers, Parallel& parallel) {
  const auto start = std::chrono::steady_clock::now();
  order(layers, parallel);
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - start;
  return time.count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
  return values[kRounds / 2];
}

void Verify(Layers& layers, Parallel& parallel) {
  AtTheEnd(layers, parallel);
  const auto expected = layers.sums;
  Epilogue(layers, parallel);
  if (layers.sums == expected) return;
  std::fputs("the orders give different numbers\n", stderr);
  std::exit(1);
}

void Compare(const ClippedGemmShape& shape) {
  Layers layers(shape);
  PoolScheduler pool(1, 2);
  ParallelFor parallel(pool);
  Verify(layers, parallel);
  const struct {
    const char* name;
    Order order;
  } rows[] = {{"at the end", AtTheEnd},
              {"at the end (A/A)", AtTheEnd},
              {"after each", AfterEach},
              {"epilogue", Epilogue}};
  std::vector<double> times[4], ratios[4];
  for (int round = 0; round < kRounds; ++round) {
    for (int k = 0; k < 4; ++k) {
      times[k].push_back(Seconds(rows[k].order, layers, parallel));
      ratios[k].push_back(times[k].back() / times[0].back());
    }
  }
  std::printf("%ld rows, %ld x %ld\n",
              static_cast<long>(shape.batch * shape.positions),
              static_cast<long>(shape.m), static_cast<long>(shape.n));
  for (int k = 0; k < 4; ++k) {
    std::printf("  %-18s %7.2f ms  %.3f\n", rows[k].name,
                1e3 * Median(times[k]), Median(ratios[k]));
  }
}

}  // namespace
}  // namespace bk

int main() {
  bk::Compare({128, 1, 1, 1000, 1000});
  bk::Compare({8, 1, 100, 768, 768});
  bk::Compare({8, 1, 100, 768, 3072});
  return 0;
}
