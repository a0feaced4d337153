#include "benchmarks/gpu/device/layer.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <random>
#include <utility>

#include "custom_calls/cuda/clipped_gemm.h"
#include "custom_calls/cuda/cublas/product.h"
#include "custom_calls/cuda/direct_norm.h"
#include "custom_calls/cuda/ghost_norm.h"
#include "custom_calls/cuda/per_sample_grad.h"
#include "custom_calls/cuda/weighted_sum.h"
#include "custom_calls/element.h"
#include "custom_calls/reference/convert.h"

namespace bk::bench {
namespace {

constexpr size_t kPattern = 1 << 16;  // numbers, one after the other again
constexpr double kShareOfMemory = 0.4;

std::string Text(cudaError_t error) {
  return error == cudaSuccess ? "" : TextOf(static_cast<int>(error));
}

template <class T>
class Builder {
 public:
  explicit Builder(const DenseShape& shape) : s_(shape) {}

  Operations Build() {
    a_ = Filled(Rows() * s_.d, "a");
    g_ = Filled(Rows() * s_.p, "g");
    factor_ = New<float>(Count(s_.batch), "factor");
    const std::vector<float> factors(s_.batch, 0.5f);
    CopyIn(factor_->as<float>(), factors.data(), s_.batch * sizeof(float));
    AddNorms();
    AddSum();
    if (GradientBytes() < kShareOfMemory * static_cast<double>(FreeBytes())) {
      AddGradients();
    }
    return std::move(made_);
  }

 private:
  static double Count(int64_t count) { return static_cast<double>(count); }
  double Rows() const { return Count(s_.batch * s_.weights * s_.positions); }
  double Flops() const {
    return 2 * Rows() * static_cast<double>(s_.d) * static_cast<double>(s_.p);
  }
  double OperandBytes() const {
    return Rows() * static_cast<double>((s_.d + s_.p) * sizeof(T));
  }
  double WeightBytes() const {
    return static_cast<double>(s_.weights * s_.d * s_.p) * sizeof(float);
  }
  double GradientBytes() const {
    return static_cast<double>(s_.batch) * WeightBytes();
  }

  template <class Element>
  const Memory* New(double size, const std::string& name) {
    const auto bytes =
        static_cast<size_t>(std::max(size, 1.0)) * sizeof(Element);
    made_.memory.push_back(std::make_unique<Memory>(bytes, name));
    return made_.memory.back().get();
  }
  const Memory* Bytes(int64_t bytes, const std::string& name) {
    return New<char>(static_cast<double>(bytes), name);
  }

  // Never zeros: some clocks rise when nothing toggles.
  const Memory* Filled(double size, const std::string& name) {
    const Memory* memory = New<T>(size, name);
    std::mt19937 random(static_cast<unsigned>(made_.memory.size()));
    std::normal_distribution<float> normal;
    std::vector<T> pattern(kPattern);
    for (T& x : pattern) {
      x = reference::FromDouble<T>(static_cast<double>(normal(random)));
    }
    const auto count = static_cast<size_t>(size);
    for (size_t begin = 0; begin < count; begin += kPattern) {
      CopyIn(memory->as<T>() + begin, pattern.data(),
             std::min(kPattern, count - begin) * sizeof(T));
    }
    return memory;
  }

  void Add(Operation operation) { made_.all.push_back(std::move(operation)); }

  void AddNorms() {
    const double gram = Rows() * static_cast<double>(s_.positions + 1) *
                        static_cast<double>(s_.d + s_.p);
    AddNorm("ghost_norm", gram, cuda::GhostNormWorkspaceBytes(s_),
            cuda::GhostNorm<T>);
    AddNorm("direct_norm", Flops(), cuda::DirectNormWorkspaceBytes(s_),
            cuda::DirectNorm<T>);
    // Whole Gram matrices: a library makes both halves.
    AddProduct("ghost_norm", gram,
               {s_.batch * s_.weights, (s_.d + s_.p + 1) / 2, s_.positions,
                s_.positions});
    AddProduct("direct_norm", Flops(), AllRows());
  }

  // Each has results of its own: operations may run beside each other.
  template <class Kernel>
  void AddNorm(const std::string& name, double flops, int64_t workspace_bytes,
               Kernel kernel) {
    const Memory* workspace = Bytes(workspace_bytes, "workspace");
    const Memory* norm = New<float>(Count(s_.batch), "sq_norm");
    const Memory* upper = New<float>(Count(s_.batch), "sq_norm_upper");
    Add({name,
         "ours",
         flops,
         OperandBytes(),
         [=, s = s_, a = a_->as<T>(), g = g_->as<T>()](void* stream) {
           return Text(kernel(s, a, g, workspace->as<void>(), norm->as<float>(),
                              upper->as<float>(),
                              static_cast<cudaStream_t>(stream)));
         },
         {norm, upper}});
  }

  void AddSum() {
    const ClippedGemmShape shape = {s_.batch, s_.weights, s_.positions, s_.d,
                                    s_.p};
    const Memory* workspace = Bytes(
        cuda::ClippedGemmWorkspaceBytes(shape, sizeof(float)), "workspace");
    const Memory* sum = New<float>(WeightBytes() / sizeof(float), "sum");
    Add({"clipped_gemm",
         "ours",
         Flops(),
         OperandBytes() + WeightBytes(),
         [=, a = a_->as<T>(), g = g_->as<T>(),
          factor = factor_->as<float>()](void* stream) {
           return Text(cuda::ClippedGemm<T>(
               shape, a, factor, g, false, workspace->as<void>(),
               sum->as<float>(), static_cast<cudaStream_t>(stream)));
         },
         {sum}});
    AddProduct("clipped_gemm", Flops(), AllRows());
  }

  void AddGradients() {
    const Memory* workspace =
        Bytes(cuda::PerSampleGradWorkspaceBytes(s_), "workspace");
    const Memory* grad = New<float>(GradientBytes() / sizeof(float), "grad");
    const Memory* norm = New<float>(Count(s_.batch), "sq_norm");
    const Memory* upper = New<float>(Count(s_.batch), "sq_norm_upper");
    Add({"per_sample_grad",
         "ours",
         Flops(),
         OperandBytes() + GradientBytes(),
         [=, s = s_, a = a_->as<T>(), g = g_->as<T>()](void* stream) {
           return Text(cuda::PerSampleGrad<T>(
               s, a, g, workspace->as<void>(), grad->as<float>(),
               norm->as<float>(), upper->as<float>(),
               static_cast<cudaStream_t>(stream)));
         },
         {grad, norm, upper}});
    AddProduct("per_sample_grad", Flops(),
               {s_.batch * s_.weights, s_.positions, s_.d, s_.p});
    AddWeightedSum(grad);
  }

  // Of the gradients that were stored; a library has no name for it.
  void AddWeightedSum(const Memory* grad) {
    const WeightedSumShape shape = {s_.batch, s_.weights * s_.d * s_.p};
    const Memory* sum = New<float>(WeightBytes() / sizeof(float), "sum");
    Add({"weighted_sum",
         "ours",
         GradientBytes() / 2,
         GradientBytes() + WeightBytes(),
         [=, factor = factor_->as<float>()](void* stream) {
           return Text(cuda::WeightedSum<float>(
               shape, factor, grad->as<float>(), sum->as<float>(),
               static_cast<cudaStream_t>(stream)));
         },
         {sum}});
  }

  // A product of cublasLt: so many of left^T right, [rows, m] and [rows, n].
  struct Sizes {
    int64_t count, rows, m, n;
  };
  Sizes AllRows() const {
    return {s_.weights, s_.batch * s_.positions, s_.d, s_.p};
  }

  void AddProduct(const std::string& name, double flops, const Sizes& sizes) {
    AddProductOf(name, "cublasLt", flops, sizes, cuda::kProductElement<T>);
    if (sizeof(T) == 4) {
      AddProductOf(name, "cublasLt-tf32", flops, sizes,
                   cuda::ProductElement::kTf32);
    }
  }

  void AddProductOf(const std::string& name, const std::string& maker,
                    double flops, const Sizes& z,
                    cuda::ProductElement element) {
    const cuda::Products products = {element, z.count, z.rows, z.m, z.n};
    if (!cuda::CanMultiply(products)) return;
    const auto size = [&](int64_t x, int64_t y) {
      return static_cast<double>(z.count) * static_cast<double>(x) *
             static_cast<double>(y);
    };
    const double out_bytes = size(z.m, z.n) * sizeof(float);
    const Memory* left = Filled(size(z.rows, z.m), "left");
    const Memory* right = Filled(size(z.rows, z.n), "right");
    const Memory* out = New<float>(size(z.m, z.n), "out");
    const Memory* scratch = Bytes(cuda::kProductScratchBytes, "scratch");
    const cuda::ProductOperands operands = {left->as<void>(), right->as<void>(),
                                            out->as<float>(), false};
    const double bytes = size(z.rows, z.m + z.n) * sizeof(T) + out_bytes;
    Add({name,
         maker,
         flops,
         bytes,
         [=](void* stream) -> std::string {
           const cublasStatus_t status = cuda::Multiply(
               products, operands,
               {scratch->as<void>(), size_t{cuda::kProductScratchBytes}},
               static_cast<cudaStream_t>(stream));
           if (status == CUBLAS_STATUS_SUCCESS) return "";
           return cuda::CublasInUse()->cublasLtGetStatusString(status);
         },
         {out}});
  }

  DenseShape s_;
  Operations made_;
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
