// ChaCha20 (RFC 8439), one block per lane of a vector of 32-bit words.
//
// A group is 16 consecutive blocks, 256 words, in the order that needs no
// transposition on any instruction set: word (w, b) of a group, word w of its
// block b, has the place 16 w + b. See noise.h for the words of the nonce.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_NOISE_CHACHA_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_NOISE_CHACHA_INL_H_

#include "custom_calls/cpu/isa/vector-inl.h"
#include "custom_calls/noise.h"

namespace bk::BK_ISA {

inline constexpr int64_t kBlockLanes = kLanes<uint32_t>;
static_assert(kBlocksPerGroup % kBlockLanes == 0);

#if defined(__AVX2__) && BK_VECTOR_BYTES == 32
// AVX2 has no rotation, but a shuffle moves whole bytes in one step. Shuffles
// stay within 16 bytes, so the pattern of one word repeats.
template <int k0, int k1, int k2, int k3>
BK_INLINE Words ShuffleBytes(const Words& v) {
  using Bytes = VectorOf<uint8_t, BK_VECTOR_BYTES>::Type;
  const auto bytes = BitCast<Bytes>(v);
#define BK_WORD(w) 4 * (w) + k0, 4 * (w) + k1, 4 * (w) + k2, 4 * (w) + k3
  return BitCast<Words>(__builtin_shufflevector(
      bytes, bytes, BK_WORD(0), BK_WORD(1), BK_WORD(2), BK_WORD(3), BK_WORD(4),
      BK_WORD(5), BK_WORD(6), BK_WORD(7)));
#undef BK_WORD
}
#endif

template <int kBits>
BK_INLINE Words RotateLeft(const Words& v) {
#if defined(__AVX2__) && BK_VECTOR_BYTES == 32
  if constexpr (kBits == 16) return ShuffleBytes<2, 3, 0, 1>(v);
  if constexpr (kBits == 8) return ShuffleBytes<3, 0, 1, 2>(v);
#endif
  return (v << kBits) | (v >> (32 - kBits));
}

BK_INLINE void QuarterRound(Words& a, Words& b, Words& c, Words& d) {
  a += b;
  d = RotateLeft<16>(d ^ a);
  c += d;
  b = RotateLeft<12>(b ^ c);
  a += b;
  d = RotateLeft<8>(d ^ a);
  c += d;
  b = RotateLeft<7>(b ^ c);
}

// Columns, then diagonals.
BK_INLINE void DoubleRound(Words (&x)[kBlockWords]) {
  QuarterRound(x[0], x[4], x[8], x[12]);
  QuarterRound(x[1], x[5], x[9], x[13]);
  QuarterRound(x[2], x[6], x[10], x[14]);
  QuarterRound(x[3], x[7], x[11], x[15]);
  QuarterRound(x[0], x[5], x[10], x[15]);
  QuarterRound(x[1], x[6], x[11], x[12]);
  QuarterRound(x[2], x[7], x[8], x[13]);
  QuarterRound(x[3], x[4], x[9], x[14]);
}

// Blocks [first, first + kBlockLanes) of `group`: x[w] holds their words w.
BK_INLINE void Blocks(const NoiseStream& stream, uint64_t group, int64_t first,
                      Words (&x)[kBlockWords]) {
  const uint64_t block = group * kBlocksPerGroup + static_cast<uint64_t>(first);
  uint32_t lane[kBlockLanes];
  for (int64_t i = 0; i < kBlockLanes; ++i) lane[i] = static_cast<uint32_t>(i);
  // The low half does not overflow within a group.
  const Words counter = LoadBits<Words>(lane) + static_cast<uint32_t>(block);
  const uint32_t start[kBlockWords] = {
      kChachaConstants[0],
      kChachaConstants[1],
      kChachaConstants[2],
      kChachaConstants[3],
      stream.key[0],
      stream.key[1],
      stream.key[2],
      stream.key[3],
      stream.key[4],
      stream.key[5],
      stream.key[6],
      stream.key[7],
      0,
      static_cast<uint32_t>(block >> 32),
      stream.stream,
      stream.domain,
  };
#pragma GCC unroll 16
  for (int w = 0; w < kBlockWords; ++w) x[w] = Words{} + start[w];
  x[12] = counter;
  for (int round = 0; round < 10; ++round) DoubleRound(x);
#pragma GCC unroll 16
  for (int w = 0; w < kBlockWords; ++w) x[w] += start[w];
  x[12] += counter;
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_NOISE_CHACHA_INL_H_
