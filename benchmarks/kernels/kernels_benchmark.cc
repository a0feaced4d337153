// Rates of the kernels of dense layers, without XLA around them.
//
//   bazel run //benchmarks/kernels:kernels_benchmark -- --benchmark_filter=f32
//
// Names say kernel/isa/type/shape/threads. GF/s counts useful flop: the ghost
// norm T (T + 1) (d + p) per example (half a Gram matrix, twice), products
// 2 T d p per example, the weighted sum 2 d p per example. Kernels are checked
// against each other before they are timed: the squared norm of a clipped sum
// of one example is its ghost norm, its direct norm and that of its gradient.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "custom_calls/cpu/dense/clip_factor.h"
#include "custom_calls/cpu/dense/clipped_gemm.h"
#include "custom_calls/cpu/dense/direct_norm.h"
#include "custom_calls/cpu/dense/ghost_norm.h"
#include "custom_calls/cpu/dense/per_sample_grad.h"
#include "custom_calls/cpu/dense/weighted_sum.h"
#include "custom_calls/cpu/isa/dispatch.h"
#include "custom_calls/reference/convert.h"
#include "tests/xla_plugin/fake_schedulers.h"
#include "xla_plugin/parallel_for.h"

namespace bk {
namespace {

// Layers of GPT2-small, RoBERTa-large and a multilayer perceptron.
constexpr DenseShape kShapes[] = {
    {8, 1, 100, 768, 768},   {8, 1, 100, 768, 3072},  {4, 1, 256, 1024, 4096},
    {2, 1, 1000, 768, 3072}, {128, 1, 1, 1000, 1000},
};

// Fewer examples where their gradients are stored.
constexpr DenseShape kStoredShapes[] = {
    {8, 1, 100, 768, 768},
    {4, 1, 100, 768, 3072},
    {2, 1, 1000, 768, 3072},
    {32, 1, 1, 1000, 1000},
};

template <class T>
struct Layer {
  Layer(const DenseShape& s, bool is_stored)
      : shape(s),
        a(s.batch * s.weights * s.positions * s.d),
        g(s.batch * s.weights * s.positions * s.p),
        factor(s.batch, 1),
        sq_norm(s.batch),
        sq_norm_upper(s.batch),
        sum(s.weights * s.d * s.p),
        grad(is_stored ? s.batch * s.weights * s.d * s.p : 0) {
    // Never zeros: some clocks rise when nothing toggles.
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (T& x : a) x = reference::FromDouble<T>(normal(random));
    for (T& x : g) x = reference::FromDouble<T>(normal(random));
  }
  void Ghost(const CpuKernels& kernels, Parallel& parallel) {
    GhostNorm(kernels, parallel, shape, a.data(), g.data(), sq_norm.data(),
              sq_norm_upper.data());
  }
  void Direct(const CpuKernels& kernels, Parallel& parallel) {
    DirectNorm(kernels, parallel, shape, a.data(), g.data(), sq_norm.data(),
               sq_norm_upper.data());
  }
  void Gradients(const CpuKernels& kernels, Parallel& parallel) {
    PerSampleGrad(kernels, parallel, shape, a.data(), g.data(), grad.data(),
                  sq_norm.data(), sq_norm_upper.data());
  }
  void Gemm(const CpuKernels& kernels, Parallel& parallel) {
    ClippedGemm(kernels, parallel,
                {shape.batch, shape.weights, shape.positions, shape.d, shape.p},
                a.data(), factor.data(), g.data(), sum.data());
  }
  // Of gradients in the accumulator type, as they are stored.
  void StoredSum(const CpuKernels& kernels, Parallel& parallel) {
    WeightedSum(kernels, parallel,
                {shape.batch, shape.weights * shape.d * shape.p}, factor.data(),
                grad.data(), sum.data());
  }
  double SquaredSum() const {
    double squares = 0;
    for (Accumulator<T> x : sum) {
      squares += static_cast<double>(x) * static_cast<double>(x);
    }
    return squares;
  }

  DenseShape shape;
  std::vector<T> a, g;
  std::vector<Accumulator<T>> factor, sq_norm, sq_norm_upper, sum, grad;
};

template <class T>
using Kernel = void (Layer<T>::*)(const CpuKernels&, Parallel&);

void Check(const CpuKernels& kernels, double value, double expected) {
  const double error = std::fabs(value / expected - 1);
  if (error < 1e-4) return;
  std::cerr << kernels.name << ": norm and sum differ by " << error << "\n";
  std::exit(1);
}

// Ends the program if two kernels contradict each other.
template <class T>
void Verify(const CpuKernels& kernels, DenseShape shape) {
  shape.batch = 1;
  Layer<T> layer(shape, true);
  SerialParallel serial;
  layer.Gemm(kernels, serial);
  const double expected = layer.SquaredSum();
  for (Kernel<T> norm :
       {&Layer<T>::Ghost, &Layer<T>::Direct, &Layer<T>::Gradients}) {
    (layer.*norm)(kernels, serial);
    Check(kernels, layer.sq_norm[0], expected);
  }
  layer.StoredSum(kernels, serial);
  Check(kernels, layer.SquaredSum(), expected);
}

template <class Call>
void Measure(benchmark::State& state, double flops, Call&& call) {
  for (auto _ : state) {
    call();
    benchmark::ClobberMemory();
  }
  state.counters["GF/s"] =
      benchmark::Counter(flops * static_cast<double>(state.iterations()) * 1e-9,
                         benchmark::Counter::kIsRate);
}

double GhostFlops(const DenseShape& s) {
  return static_cast<double>(s.batch * s.weights) *
         static_cast<double>(s.positions * (s.positions + 1)) *
         static_cast<double>(s.d + s.p);
}

double StoredFlops(const DenseShape& s) {
  return 2.0 * static_cast<double>(s.batch * s.weights * s.d * s.p);
}

double ProductFlops(const DenseShape& s) {
  return StoredFlops(s) * static_cast<double>(s.positions);
}

std::string Name(const char* kernel, const CpuKernels& kernels,
                 const char* type, const DenseShape& s, int threads) {
  return std::string(kernel) + "/" + kernels.name + "/" + type +
         "/B:" + std::to_string(s.batch) + "/T:" + std::to_string(s.positions) +
         "/d:" + std::to_string(s.d) + "/p:" + std::to_string(s.p) +
         "/threads:" + std::to_string(threads);
}

// One thread is measured in its own time, which other processes do not
// disturb; several threads need the clock on the wall.
template <class Function>
void Add(const std::string& name, int threads, Function function) {
  auto* added = benchmark::RegisterBenchmark(name.c_str(), function);
  if (threads > 1) added->UseRealTime();
}

// What is common to all benchmarks of one row of the output.
struct Setting {
  const CpuKernels& kernels;
  const char* type;
  int threads;
};

template <class T>
void AddKernel(const char* name, const Setting& setting,
               const DenseShape& shape, double flops, bool is_stored,
               Kernel<T> kernel) {
  const auto& [kernels, type, threads] = setting;
  Add(Name(name, kernels, type, shape, threads), threads,
      [=, &kernels = kernels, threads = threads](benchmark::State& state) {
        Verify<T>(kernels, shape);
        Layer<T> layer(shape, is_stored);
        PoolScheduler pool(threads - 1, threads);
        ParallelFor parallel(pool);
        Measure(state, flops, [&] { (layer.*kernel)(kernels, parallel); });
      });
}

template <class T>
void Register(const Setting& setting) {
  for (const DenseShape& shape : kShapes) {
    AddKernel<T>("ghost_norm", setting, shape, GhostFlops(shape), false,
                 &Layer<T>::Ghost);
    AddKernel<T>("direct_norm", setting, shape, ProductFlops(shape), false,
                 &Layer<T>::Direct);
    AddKernel<T>("clipped_gemm", setting, shape, ProductFlops(shape), false,
                 &Layer<T>::Gemm);
  }
  for (const DenseShape& shape : kStoredShapes) {
    AddKernel<T>("per_sample_grad", setting, shape, ProductFlops(shape), true,
                 &Layer<T>::Gradients);
    AddKernel<T>("weighted_sum", setting, shape, StoredFlops(shape), true,
                 &Layer<T>::StoredSum);
  }
}

// Two flop per squared norm, for a model of 200 leaves.
void ClipFactorBenchmark(benchmark::State& state) {
  const ClipFactorShape shape = {200, state.range(0)};
  const std::vector<float> sq_norms(shape.terms * shape.batch, 0.3F);
  const auto is_padding = std::make_unique<bool[]>(shape.batch);
  std::vector<float> factor(shape.batch);
  std::vector<float> norm(shape.batch);
  Measure(state, 2.0 * static_cast<double>(shape.terms * shape.batch), [&] {
    ClipFactor(shape, Clipping::kAbadi, sq_norms.data(), 1.0F, is_padding.get(),
               factor.data(), norm.data());
  });
}
BENCHMARK(ClipFactorBenchmark)->Name("clip_factor/K:200/B")->Arg(8)->Arg(256);

}  // namespace
}  // namespace bk

int main(int argc, char** argv) {
  for (const bk::CpuKernels* kernels : bk::SupportedKernels()) {
    for (int threads : {1, 2}) {
      bk::Register<float>({*kernels, "f32", threads});
      bk::Register<bk::BFloat16>({*kernels, "bf16", threads});
    }
    bk::Register<bk::Float16>({*kernels, "f16", 1});
    bk::Register<double>({*kernels, "f64", 1});
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
