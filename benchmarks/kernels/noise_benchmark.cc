// Rates of the noise kernels, without XLA around them.
//
//   bazel run //benchmarks/kernels:noise_benchmark
//
// Names say kernel/isa/type/threads. "ns/value" is time on the wall divided by
// values, with all threads at work; values are added in place to an array that
// is larger than any cache. Before it is timed, every kernel is checked
// against the reference.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "custom_calls/cpu/isa/dispatch.h"
#include "custom_calls/cpu/noise/gaussian.h"
#include "custom_calls/reference/convert.h"
#include "custom_calls/reference/gaussian.h"
#include "tests/xla_plugin/fake_schedulers.h"
#include "xla_plugin/parallel_for.h"

namespace bk {
namespace {

constexpr int64_t kValues = int64_t{1} << 24;
constexpr int64_t kStart = 0;
constexpr BlockShape kShape = {1, &kValues, &kStart, &kValues};
constexpr NoiseStream kStream = {{1, 2, 3, 4, 5, 6, 7, 8}, 0, kNoiseDomain};

template <class T>
void Verify(const CpuKernels& kernels) {
  T value = reference::FromDouble<T>(0);
  KernelsFor<T>(kernels).gaussian({kStream, 1, 1000, 1, &value, &value});
  const auto expected = static_cast<double>(
      sizeof(T) == 8 ? reference::NormalOfDouble(kStream, 1000)
                     : reference::NormalOfFloat(kStream, 1000));
  const double error = std::fabs(reference::ToDouble(value) / expected - 1);
  if (error < 0.01) return;
  std::cerr << kernels.name << ": noise differs by " << error << "\n";
  std::exit(1);
}

template <class Call>
void Measure(benchmark::State& state, Call&& call) {
  for (auto _ : state) {
    call();
    benchmark::ClobberMemory();
  }
  state.counters["ns/value"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * kValues * 1e-9,
      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

std::string Name(const char* kernel, const CpuKernels& kernels,
                 const char* type, int threads) {
  return std::string(kernel) + "/" + kernels.name + "/" + type +
         "/threads:" + std::to_string(threads);
}

double Shortest(const std::vector<double>& times) {
  return *std::min_element(times.begin(), times.end());
}

// One thread is measured in its own time, several by the clock on the wall.
// With --benchmark_repetitions=30 the shortest is reported too: on a busy
// machine it is the one that says something about the kernel.
template <class Function>
void Add(const std::string& name, int threads, Function function) {
  auto* added = benchmark::RegisterBenchmark(name.c_str(), function);
  added->ComputeStatistics("min", Shortest);
  if (threads > 1) added->UseRealTime();
}

template <class T>
void RegisterGaussian(const CpuKernels& kernels, const char* type,
                      int threads) {
  Add(Name("gaussian", kernels, type, threads), threads,
      [&kernels, threads](benchmark::State& state) {
        Verify<T>(kernels);
        std::vector<T> x(kValues, reference::FromDouble<T>(1));
        PoolScheduler pool(threads - 1, threads);
        ParallelFor parallel(pool);
        Measure(state, [&] {
          Gaussian(kernels, parallel, kStream, kShape, x.data(),
                   Accumulator<T>{0.5}, x.data());
        });
      });
}

void RegisterChacha(const CpuKernels& kernels, int threads) {
  Add(Name("chacha", kernels, "u32", threads), threads,
      [&kernels, threads](benchmark::State& state) {
        std::vector<uint32_t> words(kValues);
        PoolScheduler pool(threads - 1, threads);
        ParallelFor parallel(pool);
        Measure(state, [&] {
          ChachaWords(kernels, parallel, kStream, 0, kValues, words.data());
        });
      });
}

}  // namespace
}  // namespace bk

int main(int argc, char** argv) {
  for (const bk::CpuKernels* kernels : bk::SupportedKernels()) {
    for (int threads : {1, 2}) {
      bk::RegisterChacha(*kernels, threads);
      bk::RegisterGaussian<float>(*kernels, "f32", threads);
      bk::RegisterGaussian<bk::BFloat16>(*kernels, "bf16", threads);
      bk::RegisterGaussian<double>(*kernels, "f64", threads);
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
