// bk_ghost_norms: what bk_ghost_norm gives, added up over layers of one shape
// in one launch. Only GPUs need that: a single layer leaves much of one idle.
#if defined(BK_PLATFORM_CUDA)
#include <cstddef>
#include <cstdint>

#include "custom_calls/cuda/ghost_norm.h"
#include "xla_plugin/dense.h"
#include "xla_plugin/operation.h"

namespace bk {
namespace {

struct GhostNormsCall : Call {
  static constexpr char kName[] = "bk_ghost_norms";
  using Call::Call;
  // a [B, N, T, d] or [B * T, d] and g [B, N, T, p] or [B * T, p] of each layer
  LayerOperands layers{Attribute("layers"), Operands("operands"), "a", "g"};
  Buffer sq_norm = Result("sq_norm");              // [B]
  Buffer sq_norm_upper = Result("sq_norm_upper");  // [B]
  DenseShape shape = {};                           // of one layer

  const Buffer& Typed() const { return layers.left[0]; }

  Status Check() {
    BK_RETURN_IF_ERROR(layers.Check(cuda::kMaxLayers));
    const Buffer& a = layers.left[0];
    Rows rows;
    BK_RETURN_IF_ERROR(ReadRows(a, LengthOf(sq_norm), &rows));
    shape = {rows.batch, rows.weights, rows.positions, rows.width, 0};
    BK_RETURN_IF_ERROR(ReadSameRows(layers.right[0], a, &shape.p));
    return CheckNorms(shape.batch, a, sq_norm, sq_norm_upper);
  }

  int64_t WorkspaceBytes() const {
    return cuda::GhostNormWorkspaceBytes(
        shape, static_cast<int64_t>(layers.left.size()));
  }

  template <class T>
  Status OnCuda(const Gpu& gpu) {
    cuda::LayerPairs<T> pairs(shape.weights);
    for (size_t l = 0; l < layers.left.size(); ++l) {
      pairs.Add(layers.left[l], layers.right[l]);
    }
    return BK_CUDA_STATUS(cuda::GhostNorms<T>(
        shape, pairs, gpu.workspace, sq_norm, sq_norm_upper, gpu.stream));
  }
};

const Registration<GhostNormsCall> kRegistration;

}  // namespace
}  // namespace bk
#endif
