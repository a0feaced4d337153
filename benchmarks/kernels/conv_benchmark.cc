// Rates of the convolution kernels, without XLA around them.
//
//   bazel run //benchmarks/kernels:conv_benchmark -- --benchmark_filter=norm
//
// Names say kernel/isa/layer/threads. GF/s counts 2 T p d flop per example,
// what a gradient of the kernel needs.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "custom_calls/cpu/conv/conv_grad.h"
#include "custom_calls/cpu/conv/conv_gram.h"
#include "custom_calls/cpu/isa/dispatch.h"
#include "tests/xla_plugin/fake_schedulers.h"
#include "xla_plugin/parallel_for.h"

namespace bk {
namespace {

// Square images of `size`, k x k kernels, padding k / 2.
struct LayerSize {
  const char* name;
  int64_t size, cin, cout, k, stride;
  int64_t groups = 1;  // of cin and cout channels each
};

// Layers of ResNet18, VGG11 and MobileNet (depthwise) at 224.
constexpr LayerSize kLayers[] = {
    {"resnet_stem", 224, 3, 64, 7, 2},   {"resnet_56", 56, 64, 64, 3, 1},
    {"resnet_56_28", 56, 64, 128, 3, 2}, {"resnet_28", 28, 128, 128, 3, 1},
    {"resnet_14", 14, 256, 256, 3, 1},   {"resnet_7", 7, 512, 512, 3, 1},
    {"resnet_1x1", 56, 64, 128, 1, 2},   {"vgg_224", 224, 3, 64, 3, 1},
    {"vgg_112", 112, 64, 128, 3, 1},     {"vgg_28", 28, 512, 512, 3, 1},
    {"vgg_14", 14, 512, 512, 3, 1},      {"resnet_14_7", 14, 256, 512, 3, 2},
    {"mobile_56", 56, 1, 1, 3, 1, 128},  {"mobile_14", 14, 1, 1, 3, 1, 512},
};

constexpr int64_t kBatch = 2;

ConvShape ShapeOf(const LayerSize& layer) {
  const int64_t out = (layer.size - 1) / layer.stride + 1;
  const int64_t low = layer.k / 2;
  return {kBatch,
          1,
          {1, layer.size, layer.size},
          {1, out, out},
          {1, layer.k, layer.k},
          {1, layer.stride, layer.stride},
          {0, low, low},
          {1, 1, 1},
          {1, 1, 1},
          layer.groups,
          layer.cin,
          layer.cout};
}

std::vector<float> Normals(int64_t size) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& x : values) x = normal(random);
  return values;
}

struct Layer {
  explicit Layer(const LayerSize& size)
      : shape(ShapeOf(size)),
        x(Normals(kBatch * size.size * size.size * size.groups * size.cin)),
        g(Normals(kBatch * shape.out[1] * shape.out[2] * size.groups *
                  size.cout)),
        factor(kBatch, 1),
        norm(kBatch),
        upper(kBatch),
        sum(size.k * size.k * size.cin * size.groups * size.cout),
        grad(kBatch * sum.size()) {}
  double Flops() const {
    return 2.0 * static_cast<double>(kBatch * shape.out[1] * shape.out[2]) *
           static_cast<double>(sum.size());
  }
  void Norm(const CpuKernels& kernels, Parallel& parallel) {
    ConvNorm(kernels, parallel, shape, x.data(), g.data(), norm.data(),
             upper.data());
  }
  void GramNorm(const CpuKernels& kernels, Parallel& parallel) {
    ConvGramNorm(kernels, parallel, shape, x.data(), g.data(), norm.data(),
                 upper.data());
  }
  void Grad(const CpuKernels& kernels, Parallel& parallel) {
    ConvGrad(kernels, parallel, shape, x.data(), g.data(), grad.data(),
             norm.data(), upper.data());
  }
  void Sum(const CpuKernels& kernels, Parallel& parallel) {
    ConvSum(kernels, parallel, shape, x.data(), factor.data(), g.data(),
            sum.data());
  }
  ConvShape shape;
  std::vector<float> x, g, factor, norm, upper, sum, grad;
};

using Call = void (Layer::*)(const CpuKernels&, Parallel&);

void Register(const char* name, Call call, const CpuKernels& kernels,
              const LayerSize& size, int threads) {
  const std::string full = std::string(name) + "/" + kernels.name + "/" +
                           size.name + "/threads:" + std::to_string(threads);
  auto* added = benchmark::RegisterBenchmark(
      full.c_str(), [=, &kernels](benchmark::State& state) {
        Layer layer(size);
        PoolScheduler pool(threads - 1, threads);
        ParallelFor parallel(pool);
        for (auto _ : state) {
          (layer.*call)(kernels, parallel);
          benchmark::ClobberMemory();
        }
        state.counters["GF/s"] = benchmark::Counter(
            layer.Flops() * static_cast<double>(state.iterations()) * 1e-9,
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
      for (const bk::LayerSize& size : bk::kLayers) {
        bk::Register("conv_norm", &bk::Layer::Norm, *kernels, size, threads);
        bk::Register("conv_gram_norm", &bk::Layer::GramNorm, *kernels, size,
                     threads);
        bk::Register("conv_grad", &bk::Layer::Grad, *kernels, size, threads);
        bk::Register("conv_sum", &bk::Layer::Sum, *kernels, size, threads);
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
