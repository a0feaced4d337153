// What kernels for GPUs are told of a block that gets noise.
#ifndef BK_JAX_XLA_PLUGIN_NOISE_BLOCK_H_
#define BK_JAX_XLA_PLUGIN_NOISE_BLOCK_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "custom_calls/cuda/gaussian.h"
#include "xla_plugin/noise.h"
#include "xla_plugin/text.h"

namespace bk {

// All but where it starts: that is in device memory, and the kernel checks.
inline Status ReadNoiseBlock(const BlockNoiseCall& call,
                             cuda::NoiseBlock* block) {
  const Buffer& x = call.x;
  const size_t rank = x.dims.size();
  if (rank > cuda::kMaxNoiseRank) {
    return Mismatch(
        x, StrCat("at most ", cuda::kMaxNoiseRank, " dimensions on a GPU"),
        ShapeString(x));
  }
  BK_RETURN_IF_ERROR(call.CheckBlock(std::vector<int64_t>(rank, 0)));
  block->rank = static_cast<int>(rank);
  std::copy(x.dims.begin(), x.dims.end(), block->size);
  std::copy(call.whole.begin(), call.whole.end(), block->whole);
  return OkStatus();
}

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_NOISE_BLOCK_H_
