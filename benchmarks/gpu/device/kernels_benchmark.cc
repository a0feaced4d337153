// Our kernels beside cublasLt's product of as many flops, timed
// by events of the device.
//
//   bazel run --config=cuda //benchmarks/gpu:kernels_benchmark --
//     --shapes=16x100x768x3072 --types=bf16 --benchmark_out=sweep.json
//
// Names say kernel/maker/type/BxTxdxp. Counters: flops that are needed (half a
// Gram matrix) and bytes (read once, written once) per second. Every operation
// runs once before, which loads its code.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <memory>
#include <string>

#include "benchmarks/gpu/device/device.h"
#include "benchmarks/gpu/device/layer.h"
#include "benchmarks/gpu/device/options.h"

namespace bk::bench {
namespace {

void Time(benchmark::State& state, const DenseShape& shape, Type type,
          const std::string& name, const std::string& maker) {
  // One layer at a time: large ones do not fit beside each other.
  static std::string kept_for;
  static Operations kept;
  const std::string key = NameOf(shape) + NameOf(type);
  if (key != kept_for) {
    kept = Operations();
    kept = MakeOperations(shape, type);
    kept_for = key;
  }
  for (const Operation& operation : kept.all) {
    if (operation.name != name || operation.maker != maker) continue;
    static void* const stream = NewStream();
    std::string problem = operation.enqueue(stream);
    Wait();
    for (auto _ : state) {
      state.SetIterationTime(Seconds(stream, [&] {
        const std::string text = operation.enqueue(stream);
        if (!text.empty()) problem = text;
      }));
    }
    if (!problem.empty()) state.SkipWithError(problem.c_str());
    const auto times = static_cast<double>(state.iterations());
    state.counters["flops"] = benchmark::Counter(operation.flops * times,
                                                 benchmark::Counter::kIsRate);
    state.counters["bytes"] = benchmark::Counter(operation.bytes * times,
                                                 benchmark::Counter::kIsRate);
    return;
  }
  state.SkipWithError("no such operation: no algorithm, or not enough memory");
}

// What cublasLt has a product beside, and what it has nothing like.
constexpr const char* kKernels[] = {
    "ghost_norm", "direct_norm", "clipped_gemm", "per_sample_grad",
    "tied_cross", "conv_norm",   "conv_sum"};
constexpr const char* kAlone[] = {"weighted_sum", "embedding_norm",
                                  "clipped_scatter", "gaussian"};
// For float32 alone, which gradients are added up in.
constexpr const char* kNoises[] = {"banded_gaussian", "gaussians"};

void RegisterOne(const Options& options, const DenseShape& shape, Type type,
                 const std::string& kernel, const std::string& maker) {
  const std::string name =
      kernel + "/" + maker + "/" + NameOf(type) + "/" + NameOf(shape);
  auto* made =
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
        Time(state, shape, type, kernel, maker);
      });
  made->UseManualTime()->Unit(benchmark::kMicrosecond);
  if (IsEmulated()) made->Iterations(options.repeats);
}

void Register(const Options& options, const DenseShape& shape, Type type) {
  for (const char* kernel : kKernels) {
    for (const std::string maker : {"ours", "cublasLt", "cublasLt-tf32"}) {
      if (maker == "cublasLt-tf32" && type != Type::kF32) continue;
      RegisterOne(options, shape, type, kernel, maker);
    }
  }
  for (const char* kernel : kAlone) {
    RegisterOne(options, shape, type, kernel, "ours");
  }
  if (type != Type::kF32) return;
  for (const char* kernel : kNoises) {
    RegisterOne(options, shape, type, kernel, "ours");
  }
}

int Main(int count, char** arguments) {
  const Options options = TakeOptions(&count, arguments);
  if (!options.problem.empty() || !Missing().empty()) {
    std::fprintf(
        stderr, "kernels_benchmark: %s\n",
        (options.problem.empty() ? Missing() : options.problem).c_str());
    return 1;
  }
  const std::string no_library = UseLibrary(options);
  benchmark::AddCustomContext("cublasLt",
                              no_library.empty() ? "found" : no_library);
  benchmark::AddCustomContext("emulated", IsEmulated() ? "yes" : "no");
  for (const auto& [name, value] : Describe()) {
    benchmark::AddCustomContext("device_" + name, value);
  }
  for (const DenseShape& shape : options.shapes) {
    for (const Type type : options.types) Register(options, shape, type);
  }
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace bk::bench

int main(int count, char** arguments) {
  return bk::bench::Main(count, arguments);
}
