// What the operations of noise have in common: the words that say which numbers
// are drawn.
#ifndef BK_JAX_XLA_PLUGIN_NOISE_H_
#define BK_JAX_XLA_PLUGIN_NOISE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "custom_calls/noise.h"
#include "xla_plugin/call.h"

namespace bk {

struct NoiseCall : Call {
  using Call::Call;

  // A word of the nonce: an attribute, because it is known when a program is
  // traced and the same on every device.
  absl::Status ReadWord(const char* name, uint32_t* word) const;

  // The same for several arrays.
  absl::Status ReadWords(const char* name, std::vector<uint32_t>* words) const;

  // On CPUs, where a key can be read.
  static NoiseStream StreamOf(const uint32_t* key, uint32_t stream,
                              uint32_t domain);

 private:
  absl::Status CheckWord(const char* name, int64_t value, uint32_t* word) const;
};

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_NOISE_H_
