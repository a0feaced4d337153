// What the operations of convolutions check.
#ifndef BK_JAX_XLA_PLUGIN_CONV_H_
#define BK_JAX_XLA_PLUGIN_CONV_H_

#include <cstdint>
#include <vector>

#include "custom_calls/shapes.h"
#include "xla_plugin/call.h"
#include "xla_plugin/status.h"

namespace bk {

struct ConvCall : Call {
  using Call::Call;
  ConvShape shape = {};

  // Images x [B * images, spatial..., C] and g [B * images, spatial'..., O]
  // with one to three spatial dimensions, and the window from the attributes.
  Status ReadShape(const Buffer& x, const Buffer& g, int64_t batch);

  // [lead..., kD, kH, kW, cin, groups * cout]
  std::vector<int64_t> KernelDims(std::vector<int64_t> lead) const;

 private:
  Status ReadImages(const Buffer& x, const Buffer& g, int64_t batch);
  Status ReadGroups(int64_t channels, int64_t outputs);
  // Three integers in [low, 2^31).
  Status ReadTriple(const char* name, int64_t low, int64_t (&to)[3]);
};

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_CONV_H_
