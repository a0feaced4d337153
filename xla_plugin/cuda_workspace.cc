#include "xla_plugin/cuda_workspace.h"

#include <algorithm>

#include "custom_calls/cuda/clipped_gemm.h"
#include "custom_calls/cuda/clipped_scatter.h"
#include "custom_calls/cuda/conv_grad.h"
#include "custom_calls/cuda/direct_norm.h"
#include "custom_calls/cuda/embedding_norm.h"
#include "custom_calls/cuda/ghost_norm.h"
#include "custom_calls/cuda/per_sample_grad.h"
#include "custom_calls/cuda/tied_cross.h"
#include "custom_calls/shapes.h"

namespace bk {
namespace {

// a [B, N, T, d], g [B, N, T, p]
DenseShape NormShape(const CallForm& form) {
  const auto& a = form.operands.at(0);
  return {a.at(0), a.at(1), a.at(2), a.at(3), form.operands.at(1).at(3)};
}

// lhs [B, N, T, m], factor, rhs [B, N, T, n]
ClippedGemmShape GemmShape(const CallForm& form) {
  const auto& lhs = form.operands.at(0);
  return {lhs.at(0), lhs.at(1), lhs.at(2), lhs.at(3),
          form.operands.at(2).at(3)};
}

// g [B, T, p]; the size of the table does not matter.
LookupShape LookupOf(const std::vector<int64_t>& g) {
  return {g.at(0), g.at(1), g.at(2), 0};
}

// left [B, T, rows], right, ids, g [B, S, p]
TiedCrossShape CrossShape(const CallForm& form) {
  const auto& left = form.operands.at(0);
  const auto& g = form.operands.at(3);
  return {left.at(0), left.at(1), left.at(2), g.at(1), g.at(2)};
}

// x [B, images, D, H, W, C], g [B, images, D', H', W', O]; the kernel and
// groups are attributes. The rest of the window does not matter.
ConvShape ConvShapeOf(const CallForm& form, const std::vector<int64_t>& g) {
  const auto& x = form.operands.at(0);
  const auto& kernel = form.attributes.at("kernel");
  ConvShape shape = {};
  shape.batch = x.at(0);
  shape.images = x.at(1);
  for (int axis = 0; axis < 3; ++axis) {
    shape.in[axis] = x.at(2 + axis);
    shape.out[axis] = g.at(2 + axis);
    shape.kernel[axis] = kernel.at(axis);
  }
  shape.groups = form.attributes.at("groups").at(0);
  shape.cin = x.at(5) / shape.groups;
  shape.cout = g.at(5) / shape.groups;
  return shape;
}

int64_t AtLeastOne(int64_t bytes) { return std::max<int64_t>(bytes, 1); }

// Of calls on lookups and convolutions.
int64_t SparseOrConvBytes(std::string_view target, const CallForm& form) {
  const auto& operands = form.operands;
  if (target == "bk_embedding_norm") {
    return AtLeastOne(
        cuda::EmbeddingNormWorkspaceBytes(LookupOf(operands.at(1))));
  }
  if (target == "bk_clipped_scatter") {
    return AtLeastOne(
        cuda::ClippedScatterWorkspaceBytes(LookupOf(operands.at(2))));
  }
  if (target == "bk_tied_cross") {
    return AtLeastOne(cuda::TiedCrossWorkspaceBytes(CrossShape(form)));
  }
  if (target == "bk_conv_norm" || target == "bk_conv_grad") {
    return AtLeastOne(
        cuda::ConvNormWorkspaceBytes(ConvShapeOf(form, operands.at(1))));
  }
  if (target == "bk_conv_sum") {
    return AtLeastOne(
        cuda::ConvSumWorkspaceBytes(ConvShapeOf(form, operands.at(2))));
  }
  return 0;
}

}  // namespace

int64_t WorkspaceBytes(std::string_view target, const CallForm& form) {
  if (target == "bk_ghost_norm") {
    return AtLeastOne(cuda::GhostNormWorkspaceBytes(NormShape(form)));
  }
  if (target == "bk_direct_norm") {
    return AtLeastOne(cuda::DirectNormWorkspaceBytes(NormShape(form)));
  }
  if (target == "bk_per_sample_grad") {
    return AtLeastOne(cuda::PerSampleGradWorkspaceBytes(NormShape(form)));
  }
  if (target == "bk_clipped_gemm" || target == "bk_clipped_gemm_add") {
    return AtLeastOne(
        cuda::ClippedGemmWorkspaceBytes(GemmShape(form), form.result_bytes));
  }
  return SparseOrConvBytes(target, form);
}

}  // namespace bk
