// What the operations of noise have in common: the words that say which numbers
// are drawn.
#ifndef BK_JAX_XLA_PLUGIN_NOISE_H_
#define BK_JAX_XLA_PLUGIN_NOISE_H_

#include <cstdint>
#include <vector>

#include "custom_calls/noise.h"
#include "xla_plugin/call.h"
#include "xla_plugin/status.h"

namespace bk {

struct NoiseCall : Call {
  using Call::Call;

  // A word of the nonce: an attribute, because it is known when a program is
  // traced and the same on every device.
  Status ReadWord(const char* name, uint32_t* word) const;

  // The same for several arrays.
  Status ReadWords(const char* name, std::vector<uint32_t>* words) const;

  // On CPUs, where a key can be read.
  static NoiseStream StreamOf(const uint32_t* key, uint32_t stream,
                              uint32_t domain);

 private:
  Status CheckWord(const char* name, int64_t value, uint32_t* word) const;
};

// Noise for x, the block at `start` of an array of shape `whole`. `start` is an
// operand, because one program runs on all devices and each has its own block.
struct BlockNoiseCall : NoiseCall {
  using NoiseCall::NoiseCall;
  Buffer x = Operand("x");            // any shape
  Buffer key = Operand("key");        // [8], or [terms, 8]
  Buffer stddev = Operand("stddev");  // [], or [terms]
  Buffer start = Operand("start");    // [rank of x]
  Buffer out = Result("out");         // like x; may be x
  uint32_t stream = 0;
  ffi::Span<const int64_t> whole;

  const Buffer& Typed() const { return x; }

  // All but where the block lies; the noise of each of `terms` has a key.
  Status CheckArrays(const std::vector<int64_t>& terms);

  // offset + size <= whole in every dimension, and positions fit into 63 bits.
  // An overlap would use noise twice, so nothing is clamped.
  Status CheckBlock(const std::vector<int64_t>& offset) const;

 private:
  Status ReadWhole();
};

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_NOISE_H_
