// Where a random number comes from: key, stream and position decide it, and
// nothing else does.
//
// Word `position` of a stream is a word of a ChaCha20 block (RFC 8439):
//
//   state words 0..3    the constants of ChaCha
//               4..11   the key, 256 bits
//               12      block index, low 32 bits: the block counter
//               13      block index, high 32 bits: with the next two, the nonce
//               14      stream
//               15      domain
//
//   block index = 16 (position / 256) + position % 16
//   word of it  = position / 16 % 16
//
// So 16 blocks form a group of 256 words, and a vector of blocks gives
// neighbouring words. Two domains never share a block, nor do two streams.
#ifndef BK_JAX_CUSTOM_CALLS_NOISE_H_
#define BK_JAX_CUSTOM_CALLS_NOISE_H_

#include <cstdint>

namespace bk {

inline constexpr int64_t kKeyWords = 8;
inline constexpr int64_t kBlockWords = 16;
inline constexpr int64_t kBlocksPerGroup = 16;
inline constexpr int64_t kGroupWords = kBlockWords * kBlocksPerGroup;

// "expand 32-byte k"
inline constexpr uint32_t kChachaConstants[4] = {0x61707865, 0x3320646e,
                                                 0x79622d32, 0x6b206574};

// What the words are for. python/bk_jax/ops/chacha.py has the same list.
inline constexpr uint32_t kNoiseDomain = 5;

struct NoiseStream {
  uint32_t key[kKeyWords];
  uint32_t stream;
  uint32_t domain;
};

// A whole array and its stream; x and out may be the same.
struct NoiseArray {
  uint32_t stream;
  int64_t size;
  const float* x;
  float* out;
};

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_NOISE_H_
