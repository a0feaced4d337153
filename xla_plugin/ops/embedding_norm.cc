// bk_embedding_norm: squared norms of gradients of a table that is looked up.
#include <cstdint>

#include "xla_plugin/dense.h"
#include "xla_plugin/lookup.h"
#include "xla_plugin/operation.h"
#if defined(BK_PLATFORM_CUDA)
#include "custom_calls/cuda/embedding_norm.h"
#else
#include "custom_calls/cpu/sparse/embedding_norm.h"
#endif

namespace bk {
namespace {

struct EmbeddingNormCall : Call {
  static constexpr char kName[] = "bk_embedding_norm";
  using Call::Call;
  Buffer ids = Operand("ids");                     // [B, T]
  Buffer g = Operand("g");                         // [B, T, p]
  Buffer sq_norm = Result("sq_norm");              // [B]
  Buffer sq_norm_upper = Result("sq_norm_upper");  // [B]
  LookupShape shape = {};

  const Buffer& Typed() const { return g; }

  Status Check() {
    BK_RETURN_IF_ERROR(ReadLookup(ids, g, &shape));
    return CheckNorms(shape.batch, g, sq_norm, sq_norm_upper);
  }

#if defined(BK_PLATFORM_CUDA)
  int64_t WorkspaceBytes() const {
    return cuda::EmbeddingNormWorkspaceBytes(shape);
  }

  template <class T>
  Status OnCuda(const Gpu& gpu) {
    return BK_CUDA_STATUS(cuda::EmbeddingNorm<T>(
        shape, ids, g, sq_norm, sq_norm_upper, gpu.workspace, gpu.stream));
  }
#else
  template <class T>
  void OnCpu(const Cpu& cpu) {
    EmbeddingNorm<T>(cpu.kernels, cpu.parallel, shape, ids, g, sq_norm,
                     sq_norm_upper);
  }
#endif
};

const Registration<EmbeddingNormCall> kRegistration;

}  // namespace
}  // namespace bk
