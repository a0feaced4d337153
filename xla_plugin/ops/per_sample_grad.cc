// bk_per_sample_grad: gradients of dense layers, one for each example, and
// their squared norms.
#include "xla_plugin/dense.h"
#include "xla_plugin/operation.h"
#if defined(BK_PLATFORM_CUDA)
#include <algorithm>

#include "custom_calls/cuda/cublas/dense.h"
#include "custom_calls/cuda/per_sample_grad.h"
#include "xla_plugin/cublas.h"
#else
#include "custom_calls/cpu/dense/per_sample_grad.h"
#endif

namespace bk {
namespace {

struct PerSampleGradCall : DenseCall {
  static constexpr char kName[] = "bk_per_sample_grad";
  using DenseCall::DenseCall;
  Buffer grad = Result("grad");                    // [B, N, d, p]
  Buffer sq_norm = Result("sq_norm");              // [B]
  Buffer sq_norm_upper = Result("sq_norm_upper");  // [B]

  Status Check() {
    BK_RETURN_IF_ERROR(ReadShape(LengthOf(sq_norm)));
    BK_RETURN_IF_ERROR(
        CheckShape(grad, AccumulatorType(a),
                   {shape.batch, shape.weights, shape.d, shape.p}));
    return CheckNorms(shape.batch, a, sq_norm, sq_norm_upper);
  }

#if defined(BK_PLATFORM_CUDA)
  int64_t WorkspaceBytes() const {
    const int64_t own = cuda::PerSampleGradWorkspaceBytes(shape);
    if (a.type == ffi::F64) return own;
    return std::max(own, cuda::GradientsWorkspaceBytes({shape, {}}));
  }

  // By cublasLt, if it can; by our kernels.
  template <class T>
  Status OnCuda(const Gpu& gpu) {
    if constexpr (!std::is_same_v<T, double>) {
      cuda::LibraryGradients library = {shape, cuda::kProductElement<T>};
      if (std::is_same_v<T, float> && AsksForTf32(attributes_)) {
        library.element = cuda::ProductElement::kTf32;
      }
      if (cuda::CanMakeGradients(library)) {
        return CublasStatus(
            kName,
            cuda::MakeGradients(library, a.data, g.data, gpu.workspace, grad,
                                sq_norm, sq_norm_upper, gpu.stream),
            __FILE__, __LINE__);
      }
    }
    return BK_CUDA_STATUS(cuda::PerSampleGrad<T>(
        shape, a, g, gpu.workspace, grad, sq_norm, sq_norm_upper, gpu.stream));
  }
#else
  template <class T>
  void OnCpu(const Cpu& cpu) {
    PerSampleGrad<T>(cpu.kernels, cpu.parallel, shape, a, g, grad, sq_norm,
                     sq_norm_upper);
  }
#endif
};

const Registration<PerSampleGradCall> kRegistration;

}  // namespace
}  // namespace bk
