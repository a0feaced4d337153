#include "benchmarks/gpu/device/layer.h"

#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/gpu/device/maker.h"
#include "custom_calls/cuda/clipped_gemm.h"
#include "custom_calls/cuda/direct_norm.h"
#include "custom_calls/cuda/ghost_norm.h"
#include "custom_calls/cuda/per_sample_grad.h"
#include "custom_calls/cuda/weighted_sum.h"
#include "custom_calls/element.h"

namespace bk::bench {
namespace {

// Of the free memory: gradients are there up to three times, ours and those of
// cublasLt's products.
constexpr double kShareOfMemory = 0.2;

template <class T>
class Builder {
 public:
  explicit Builder(const DenseShape& shape) : s_(shape) {}

  Operations Build() {
    a_ = make_.Filled(Rows() * s_.d, "a");
    g_ = make_.Filled(Rows() * s_.p, "g");
    factor_ = make_.Of(std::vector<float>(s_.batch, 0.5f), "factor");
    AddNorms();
    AddSum();
    if (GradientBytes() < kShareOfMemory * static_cast<double>(FreeBytes())) {
      AddGradients();
    }
    AddOthers(s_, make_);
    AddNoises(s_, make_);
    return make_.Take();
  }

 private:
  int64_t Rows() const { return s_.batch * s_.weights * s_.positions; }
  int64_t Weight() const { return s_.weights * s_.d * s_.p; }
  double Flops() const {
    return 2 * static_cast<double>(Rows()) * static_cast<double>(s_.d) *
           static_cast<double>(s_.p);
  }
  double OperandBytes() const {
    return static_cast<double>(Rows() * (s_.d + s_.p)) * sizeof(T);
  }
  double WeightBytes() const {
    return static_cast<double>(Weight()) * sizeof(float);
  }
  double GradientBytes() const {
    return static_cast<double>(s_.batch) * WeightBytes();
  }

  void AddNorms() {
    const double gram = static_cast<double>(Rows()) *
                        static_cast<double>(s_.positions + 1) *
                        static_cast<double>(s_.d + s_.p);
    AddNorm("ghost_norm", gram, cuda::GhostNormWorkspaceBytes(s_),
            cuda::GhostNorm<T>);
    AddNorm("direct_norm", Flops(), cuda::DirectNormWorkspaceBytes(s_),
            cuda::DirectNorm<T>);
    // Whole Gram matrices: a library makes both halves.
    make_.AddProduct("ghost_norm", gram,
                     {s_.batch * s_.weights, (s_.d + s_.p + 1) / 2,
                      s_.positions, s_.positions});
    make_.AddProduct("direct_norm", Flops(), AllRows());
  }

  // Each has results of its own: operations may run beside each other.
  template <class Kernel>
  void AddNorm(const std::string& name, double flops, int64_t workspace_bytes,
               Kernel kernel) {
    const Memory* workspace = New<char>(workspace_bytes, "workspace");
    const Memory* norm = New<float>(s_.batch, "sq_norm");
    const Memory* upper = New<float>(s_.batch, "sq_norm_upper");
    make_.Add({name,
               "ours",
               flops,
               OperandBytes(),
               [=, s = s_, a = a_->As<T>(), g = g_->As<T>()](void* stream) {
                 return Text(kernel(s, a, g, workspace->As<void>(),
                                    norm->As<float>(), upper->As<float>(),
                                    static_cast<cudaStream_t>(stream)));
               },
               {norm, upper}});
  }

  void AddSum() {
    const ClippedGemmShape shape = {s_.batch, s_.weights, s_.positions, s_.d,
                                    s_.p};
    const Memory* workspace = New<char>(
        cuda::ClippedGemmWorkspaceBytes(shape, sizeof(float)), "workspace");
    const Memory* sum = New<float>(Weight(), "sum");
    make_.Add({"clipped_gemm",
               "ours",
               Flops(),
               OperandBytes() + WeightBytes(),
               [=, a = a_->As<T>(), g = g_->As<T>(),
                factor = factor_->As<float>()](void* stream) {
                 return Text(cuda::ClippedGemm<T>(
                     shape, a, factor, g, false, workspace->As<void>(),
                     sum->As<float>(), static_cast<cudaStream_t>(stream)));
               },
               {sum}});
    make_.AddProduct("clipped_gemm", Flops(), AllRows());
  }

  void AddGradients() {
    const Memory* workspace =
        New<char>(cuda::PerSampleGradWorkspaceBytes(s_), "workspace");
    const Memory* grad = New<float>(s_.batch * Weight(), "grad");
    const Memory* norm = New<float>(s_.batch, "sq_norm");
    const Memory* upper = New<float>(s_.batch, "sq_norm_upper");
    make_.Add({"per_sample_grad",
               "ours",
               Flops(),
               OperandBytes() + GradientBytes(),
               [=, s = s_, a = a_->As<T>(), g = g_->As<T>()](void* stream) {
                 return Text(cuda::PerSampleGrad<T>(
                     s, a, g, workspace->As<void>(), grad->As<float>(),
                     norm->As<float>(), upper->As<float>(),
                     static_cast<cudaStream_t>(stream)));
               },
               {grad, norm, upper}});
    make_.AddProduct("per_sample_grad", Flops(),
                     {s_.batch * s_.weights, s_.positions, s_.d, s_.p});
    AddWeightedSum(grad);
  }

  // Of the gradients that were stored; a library has no name for it.
  void AddWeightedSum(const Memory* grad) {
    const WeightedSumShape shape = {s_.batch, Weight()};
    const Memory* sum = New<float>(Weight(), "sum");
    make_.Add({"weighted_sum",
               "ours",
               GradientBytes() / 2,
               GradientBytes() + WeightBytes(),
               [=, factor = factor_->As<float>()](void* stream) {
                 return Text(cuda::WeightedSum<float>(
                     shape, factor, grad->As<float>(), sum->As<float>(),
                     static_cast<cudaStream_t>(stream)));
               },
               {sum}});
  }

  ProductSizes AllRows() const {
    return {s_.weights, s_.batch * s_.positions, s_.d, s_.p};
  }
  template <class Element>
  const Memory* New(int64_t size, const std::string& name) {
    return make_.template New<Element>(size, name);
  }

  DenseShape s_;
  Maker<T> make_;
  const Memory* a_ = nullptr;
  const Memory* g_ = nullptr;
  const Memory* factor_ = nullptr;
};

}  // namespace

const char* NameOf(Type type) {
  switch (type) {
    case Type::kBf16:
      return "bf16";
    case Type::kF16:
      return "f16";
    default:
      return "f32";
  }
}

Operations MakeOperations(const DenseShape& shape, Type type) {
  switch (type) {
    case Type::kBf16:
      return Builder<BFloat16>(shape).Build();
    case Type::kF16:
      return Builder<Float16>(shape).Build();
    default:
      return Builder<float>(shape).Build();
  }
}

}  // namespace bk::bench
