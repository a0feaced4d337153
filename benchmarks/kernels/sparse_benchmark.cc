// Rates of the lookup kernels, without XLA around them.
//
//   bazel run //benchmarks/kernels:sparse_benchmark
//
// Names say kernel/isa/B/T/threads; p = 768. GB/s counts one read of g; the
// tied cross term, 2 T^2 p flop for 4 T p bytes, is bound by arithmetic
// instead.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "custom_calls/cpu/isa/dispatch.h"
#include "custom_calls/cpu/sparse/clipped_scatter.h"
#include "custom_calls/cpu/sparse/embedding_norm.h"
#include "custom_calls/cpu/sparse/tied_cross.h"
#include "tests/xla_plugin/fake_schedulers.h"
#include "xla_plugin/parallel_for.h"

namespace bk {
namespace {

constexpr int64_t kWidth = 768;
constexpr int64_t kRows = 50257;

// Frequencies as in text: token k about as often as 1 / k.
struct Lookup {
  Lookup(int64_t batch, int64_t tokens)
      : shape{batch, tokens, kWidth, kRows},
        ids(batch * tokens),
        g(batch * tokens * kWidth),
        factor(batch, 1),
        norm(batch),
        upper(batch),
        sum(kRows * kWidth),
        left(batch * tokens * kRows) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<double> log_rank(0, std::log(kRows));
    for (int32_t& id : ids) {
      id = static_cast<int32_t>(std::exp(log_rank(random))) - 1;
    }
    for (float& x : g) x = normal(random);
    // Looked up in few places: what is not looked up need not be random.
    for (int64_t k = 0; k < batch * tokens; ++k) {
      for (int64_t t = 0; t < tokens; ++t) {
        left[(k / tokens * tokens + t) * kRows + ids[k]] = normal(random);
      }
    }
  }
  void Norm(const CpuKernels& kernels, Parallel& parallel) {
    EmbeddingNorm(kernels, parallel, shape, ids.data(), g.data(), norm.data(),
                  upper.data());
  }
  void Scatter(const CpuKernels& kernels, Parallel& parallel) {
    ClippedScatter(kernels, parallel, shape, ids.data(), factor.data(),
                   g.data(), sum.data());
  }
  // A head of the same table, whose inputs are the g of the lookup.
  void Cross(const CpuKernels& kernels, Parallel& parallel) {
    TiedCross(kernels, parallel,
              {shape.batch, shape.tokens, kRows, shape.tokens, kWidth},
              left.data(), g.data(), ids.data(), g.data(), norm.data(),
              upper.data());
  }
  LookupShape shape;
  std::vector<int32_t> ids;
  std::vector<float> g, factor, norm, upper, sum, left;
};

using Call = void (Lookup::*)(const CpuKernels&, Parallel&);

void Register(const char* name, Call call, const CpuKernels& kernels,
              int64_t batch, int64_t tokens, int threads) {
  const std::string full =
      std::string(name) + "/" + kernels.name + "/B:" + std::to_string(batch) +
      "/T:" + std::to_string(tokens) + "/threads:" + std::to_string(threads);
  auto* added = benchmark::RegisterBenchmark(
      full.c_str(), [=, &kernels](benchmark::State& state) {
        Lookup lookup(batch, tokens);
        PoolScheduler pool(threads - 1, threads);
        ParallelFor parallel(pool);
        for (auto _ : state) {
          (lookup.*call)(kernels, parallel);
          benchmark::ClobberMemory();
        }
        state.counters["GB/s"] =
            benchmark::Counter(static_cast<double>(state.iterations()) * 4e-9 *
                                   static_cast<double>(lookup.g.size()),
                               benchmark::Counter::kIsRate);
      });
  // One thread is measured in its own time, which others do not disturb.
  if (threads > 1) added->UseRealTime();
}

}  // namespace
}  // namespace bk

int main(int argc, char** argv) {
  for (const bk::CpuKernels* kernels : bk::SupportedKernels()) {
    for (int threads : {1, 2}) {
      for (auto [batch, tokens] : {std::pair{8, 100}, {8, 256}, {2, 1000}}) {
        bk::Register("embedding_norm", &bk::Lookup::Norm, *kernels, batch,
                     tokens, threads);
        bk::Register("clipped_scatter", &bk::Lookup::Scatter, *kernels, batch,
                     tokens, threads);
        bk::Register("tied_cross", &bk::Lookup::Cross, *kernels, batch, tokens,
                     threads);
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
