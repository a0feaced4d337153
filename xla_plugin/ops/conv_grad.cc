// Gradients of convolution kernels: bk_conv_norm, the squared norms of every
// example's; bk_conv_grad, the gradients too; bk_conv_sum, their clipped sum.
#include <cstdint>
#include <string>
#include <vector>

#include "xla_plugin/conv.h"
#include "xla_plugin/dense.h"
#include "xla_plugin/operation.h"
#if defined(BK_PLATFORM_CUDA)
#include "custom_calls/cuda/conv_grad.h"
#else
#include "custom_calls/cpu/conv/conv_grad.h"
#include "custom_calls/cpu/conv/conv_gram.h"
#endif

namespace bk {
namespace {

struct ConvNormCall : ConvCall {
  static constexpr char kName[] = "bk_conv_norm";
  using ConvCall::ConvCall;
  Buffer x = Operand("x");             // [B * images, spatial..., C]
  Buffer g = Operand("g");             // [B * images, spatial'..., O]
  Buffer sq_norm = Result("sq_norm");  // [B]
  Buffer sq_norm_upper = Result("sq_norm_upper");  // [B]
  bool pixel_gram = false;

  const Buffer& Typed() const { return x; }

  Status Check() {
    BK_RETURN_IF_ERROR(ReadShape(x, g, LengthOf(sq_norm)));
    BK_RETURN_IF_ERROR(ReadForm());
    return CheckNorms(shape.batch, x, sq_norm, sq_norm_upper);
  }

  Status ReadForm() {
    const auto form = attributes_.String("form");
    if (!form.has_value() || (*form != "direct" && *form != "pixel_gram")) {
      return Mismatch(Attribute("form"), "\"direct\" or \"pixel_gram\"",
                      form.has_value() ? std::string(*form) : "none");
    }
    pixel_gram = *form == "pixel_gram";
    return OkStatus();
  }

#if defined(BK_PLATFORM_CUDA)
  int64_t WorkspaceBytes() const { return cuda::ConvNormWorkspaceBytes(shape); }

  // There is one form here, the direct one, whatever the attribute asks for.
  template <class T>
  Status OnCuda(const Gpu& gpu) {
    return BK_CUDA_STATUS(cuda::ConvNorm<T>(shape, x, g, sq_norm, sq_norm_upper,
                                            gpu.workspace, gpu.stream));
  }
#else
  template <class T>
  void OnCpu(const Cpu& cpu) {
    const auto norm = pixel_gram ? ConvGramNorm<T> : ConvNorm<T>;
    norm(cpu.kernels, cpu.parallel, shape, x, g, sq_norm, sq_norm_upper);
  }
#endif
};

struct ConvGradCall : ConvCall {
  static constexpr char kName[] = "bk_conv_grad";
  using ConvCall::ConvCall;
  Buffer x = Operand("x");             // [B * images, spatial..., C]
  Buffer g = Operand("g");             // [B * images, spatial'..., O]
  Buffer grad = Result("grad");        // [B, kD, kH, kW, cin, O]
  Buffer sq_norm = Result("sq_norm");  // [B]
  Buffer sq_norm_upper = Result("sq_norm_upper");  // [B]

  const Buffer& Typed() const { return x; }

  Status Check() {
    BK_RETURN_IF_ERROR(ReadShape(x, g, LengthOf(sq_norm)));
    BK_RETURN_IF_ERROR(
        CheckShape(grad, AccumulatorType(x), KernelDims({shape.batch})));
    return CheckNorms(shape.batch, x, sq_norm, sq_norm_upper);
  }

#if defined(BK_PLATFORM_CUDA)
  int64_t WorkspaceBytes() const { return cuda::ConvNormWorkspaceBytes(shape); }

  template <class T>
  Status OnCuda(const Gpu& gpu) {
    return BK_CUDA_STATUS(cuda::ConvGrad<T>(
        shape, x, g, grad, sq_norm, sq_norm_upper, gpu.workspace, gpu.stream));
  }
#else
  template <class T>
  void OnCpu(const Cpu& cpu) {
    ConvGrad<T>(cpu.kernels, cpu.parallel, shape, x, g, grad, sq_norm,
                sq_norm_upper);
  }
#endif
};

struct ConvSumCall : ConvCall {
  static constexpr char kName[] = "bk_conv_sum";
  using ConvCall::ConvCall;
  Buffer x = Operand("x");            // [B * images, spatial..., C]
  Buffer factor = Operand("factor");  // [B]
  Buffer g = Operand("g");            // [B * images, spatial'..., O]
  Buffer sum = Result("sum");         // [spatial kernel..., cin, O]

  const Buffer& Typed() const { return x; }

  Status Check() {
    BK_RETURN_IF_ERROR(ReadShape(x, g, LengthOf(factor)));
    const ffi::DataType type = AccumulatorType(x);
    BK_RETURN_IF_ERROR(CheckShape(factor, type, {shape.batch}));
    std::vector<int64_t> dims = KernelDims({});
    const auto missing = 5 - static_cast<int64_t>(x.dims.size());
    dims.erase(dims.begin(), dims.begin() + missing);
    return CheckShape(sum, type, dims);
  }

#if defined(BK_PLATFORM_CUDA)
  int64_t WorkspaceBytes() const { return cuda::ConvSumWorkspaceBytes(shape); }

  template <class T>
  Status OnCuda(const Gpu& gpu) {
    return BK_CUDA_STATUS(
        cuda::ConvSum<T>(shape, x, factor, g, sum, gpu.workspace, gpu.stream));
  }
#else
  template <class T>
  void OnCpu(const Cpu& cpu) {
    ConvSum<T>(cpu.kernels, cpu.parallel, shape, x, factor, g, sum);
  }
#endif
};

const Registration<ConvNormCall> kNormRegistration;
const Registration<ConvGradCall> kGradRegistration;
const Registration<ConvSumCall> kSumRegistration;

}  // namespace
}  // namespace bk
