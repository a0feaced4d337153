// bk_ghost_norm: squared norms of gradients of dense layers, from Gram
// matrices.
#include "xla_plugin/dense.h"
#include "xla_plugin/operation.h"
#if defined(BK_PLATFORM_CUDA)
#include "custom_calls/cuda/ghost_norm.h"
#else
#include "custom_calls/cpu/dense/ghost_norm.h"
#endif

namespace bk {
namespace {

struct GhostNormCall : DenseNormCall {
  static constexpr char kName[] = "bk_ghost_norm";
  using DenseNormCall::DenseNormCall;

#if defined(BK_PLATFORM_CUDA)
  int64_t WorkspaceBytes() const {
    return cuda::GhostNormWorkspaceBytes(shape);
  }

  template <class T>
  Status OnCuda(const Gpu& gpu) {
    return BK_CUDA_STATUS(cuda::GhostNorm<T>(
        shape, a, g, gpu.workspace, sq_norm, sq_norm_upper, gpu.stream));
  }
#else
  template <class T>
  void OnCpu(const Cpu& cpu) {
    GhostNorm<T>(cpu.kernels, cpu.parallel, shape, a, g, sq_norm,
                 sq_norm_upper);
  }
#endif
};

const Registration<GhostNormCall> kRegistration;

}  // namespace
}  // namespace bk
