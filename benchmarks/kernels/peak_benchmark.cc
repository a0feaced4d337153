// How close the kernels of dense layers come to the FMA peak, on one thread.
//
//   bazel run //benchmarks/kernels:peak_benchmark -- avx512 1.0 bf16
//
// Arguments: the instruction set, the seconds for each line, and the elements
// (f32 or bf16; the peak is that of float32). A line has two rates over the
// peak. "tasks" is from the sum of the best times of the tasks that a kernel is
// made of: on a shared machine a millisecond is undisturbed now and then, a
// whole call hardly ever. "calls" is from the median time of whole calls. Both
// are thread time, relative to the best of many loops of multiply-adds in
// between. Arrays begin at cache lines, as XLA's do.
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "custom_calls/cpu/dense/clipped_gemm.h"
#include "custom_calls/cpu/dense/direct_norm.h"
#include "custom_calls/cpu/dense/ghost_norm.h"
#include "custom_calls/cpu/dense/per_sample_grad.h"
#include "custom_calls/cpu/isa/dispatch.h"

extern "C" double BkFmaPeakAvx2();
extern "C" double BkFmaPeakAvx512();

namespace bk {
namespace {

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

// Runs items one by one and keeps the best time of each.
class TimedTasks final : public Parallel {
 public:
  void For(int64_t items, double /*flops_per_item*/,
           const Body& body) override {
    if (loop_ == best_.size()) best_.emplace_back(items, 1e9);
    std::vector<double>& best = best_[loop_++];
    for (int64_t i = 0; i < items; ++i) {
      const double start = ThreadSeconds();
      body(i, i + 1);
      best[i] = std::min(best[i], ThreadSeconds() - start);
    }
  }
  int64_t Threads() const override { return 2; }
  void NextCall() { loop_ = 0; }
  double BestSeconds() const {
    double sum = 0;
    for (const auto& loop : best_) {
      for (double seconds : loop) sum += seconds;
    }
    return sum;
  }

 private:
  size_t loop_ = 0;
  std::vector<std::vector<double>> best_;
};

float FromFloat(float x, float* /*type*/) { return x; }
BFloat16 FromFloat(float x, BFloat16* /*type*/) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return {static_cast<uint16_t>(bits >> 16)};
}

template <class T>
class Elements {
 public:
  explicit Elements(int64_t size)
      : data_(static_cast<T*>(
            ::operator new (size * sizeof(T), std::align_val_t{64}))) {
    std::normal_distribution<float> normal;
    std::mt19937 random(1);
    T* type = nullptr;
    for (int64_t i = 0; i < size; ++i) {
      data_.get()[i] = FromFloat(normal(random), type);
    }
  }
  T* Data() const { return data_.get(); }

 private:
  struct Release {
    void operator()(T* x) const { ::operator delete (x, std::align_val_t{64}); }
  };
  std::unique_ptr<T, Release> data_;
};

enum class Kernel { kGemm, kDirect, kGradient, kGhost };

struct Line {
  const char* name;
  Kernel kernel;
  DenseShape shape;

  double Flops() const {
    const auto& [b, n, t, d, p] = shape;
    const auto rows = static_cast<double>(b * t);
    return kernel == Kernel::kGhost
               ? rows * static_cast<double>((t + 1) * (d + p))
               : 2.0 * rows * static_cast<double>(d * p);
  }
};

template <class T>
void Measure(const CpuKernels& kernels, double (*peak)(), double budget,
             const Line& line) {
  const DenseShape& s = line.shape;
  const Elements<T> a(s.batch * s.positions * s.d),
      g(s.batch * s.positions * s.p);
  const Elements<float> out((line.kernel == Kernel::kGradient ? s.batch : 1) *
                            s.d * s.p);
  std::vector<float> factor(s.batch, 1), norm(s.batch), upper(s.batch);
  TimedTasks tasks;
  const auto run = [&] {
    tasks.NextCall();
    switch (line.kernel) {
      case Kernel::kGemm:
        return ClippedGemm(kernels, tasks, {s.batch, 1, s.positions, s.d, s.p},
                           a.Data(), factor.data(), g.Data(), out.Data());
      case Kernel::kDirect:
        return DirectNorm(kernels, tasks, s, a.Data(), g.Data(), norm.data(),
                          upper.data());
      case Kernel::kGradient:
        return PerSampleGrad(kernels, tasks, s, a.Data(), g.Data(), out.Data(),
                             norm.data(), upper.data());
      case Kernel::kGhost:
        return GhostNorm(kernels, tasks, s, a.Data(), g.Data(), norm.data(),
                         upper.data());
    }
  };
  double best_peak = 0;
  std::vector<double> seconds;
  for (const double start = ThreadSeconds();
       ThreadSeconds() - start < budget || seconds.empty();) {
    best_peak = std::max(best_peak, peak());
    const double before = ThreadSeconds();
    run();
    seconds.push_back(ThreadSeconds() - before);
  }
  std::sort(seconds.begin(), seconds.end());
  const double flops = line.Flops();
  std::printf("%-16s B=%-2ld T=%-5ld %4ldx%-5ld tasks %.3f  calls %.3f\n",
              line.name, s.batch, s.positions, s.d, s.p,
              flops / tasks.BestSeconds() / best_peak,
              flops / seconds[seconds.size() / 2] / best_peak);
}

template <class T>
void MeasureAll(const CpuKernels& kernels, double (*peak)(), double budget) {
  constexpr int64_t kSizes[][2] = {
      {768, 768}, {768, 2304}, {768, 3072}, {3072, 768}};
  for (const auto& [d, p] : kSizes) {
    for (const auto& [b, t] :
         {std::pair<int64_t, int64_t>{8, 100}, {2, 1000}}) {
      const DenseShape shape = {b, 1, t, d, p};
      Measure<T>(kernels, peak, budget, {"clipped gemm", Kernel::kGemm, shape});
      Measure<T>(kernels, peak, budget,
                 {"direct norm", Kernel::kDirect, shape});
      Measure<T>(kernels, peak, budget,
                 {"stored gradient", Kernel::kGradient, shape});
    }
    for (const auto& [b, t] :
         {std::pair<int64_t, int64_t>{8, 100}, {4, 256}, {2, 1000}}) {
      Measure<T>(kernels, peak, budget,
                 {"ghost norm", Kernel::kGhost, {b, 1, t, d, p}});
    }
  }
}

}  // namespace
}  // namespace bk

int main(int argc, char** argv) {
  const std::string isa = argc > 1 ? argv[1] : "avx2";
  const double budget = argc > 2 ? std::atof(argv[2]) : 1;
  const std::string elements = argc > 3 ? argv[3] : "f32";
  for (const bk::CpuKernels* kernels : bk::SupportedKernels()) {
    if (isa != kernels->name) continue;
    const auto measure = elements == "bf16" ? bk::MeasureAll<bk::BFloat16>
                                            : bk::MeasureAll<float>;
    measure(*kernels,
            kernels->vector_bytes == 64 ? BkFmaPeakAvx512 : BkFmaPeakAvx2,
            budget);
    return 0;
  }
  std::fprintf(stderr, "no kernels for %s on this CPU\n", isa.c_str());
  return 1;
}
