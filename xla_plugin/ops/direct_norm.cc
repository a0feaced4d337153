// bk_direct_norm: squared norms of gradients of dense layers, from the
// gradients.
#include "xla_plugin/dense.h"
#include "xla_plugin/operation.h"
#if defined(BK_PLATFORM_CUDA)
#include "custom_calls/cuda/direct_norm.h"
#else
#include "custom_calls/cpu/dense/direct_norm.h"
#endif

namespace bk {
namespace {

struct DirectNormCall : DenseNormCall {
  static constexpr char kName[] = "bk_direct_norm";
  using DenseNormCall::DenseNormCall;

#if defined(BK_PLATFORM_CUDA)
  int64_t WorkspaceBytes() const {
    return cuda::DirectNormWorkspaceBytes(shape);
  }

  template <class T>
  Status OnCuda(const Gpu& gpu) {
    return BK_CUDA_STATUS(cuda::DirectNorm<T>(
        shape, a, g, gpu.workspace, sq_norm, sq_norm_upper, gpu.stream));
  }
#else
  template <class T>
  void OnCpu(const Cpu& cpu) {
    DirectNorm<T>(cpu.kernels, cpu.parallel, shape, a, g, sq_norm,
                  sq_norm_upper);
  }
#endif
};

const Registration<DirectNormCall> kRegistration;

}  // namespace
}  // namespace bk
