// ChaCha20 (RFC 8439) on a GPU: a thread makes a block, 16 words.
//
// A group is 16 blocks, 256 words; word w of its block b has the place 16 w + b
// (noise.h), so 16 neighbouring threads have 16 neighbouring words in x[w].
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_CHACHA_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_CHACHA_CUH_

#include "custom_calls/cuda/platform.cuh"
#include "custom_calls/noise.h"

namespace bk::cuda {

template <int kBits>
__device__ inline uint32_t RotateLeft(uint32_t x) {
  return (x << kBits) | (x >> (32 - kBits));
}

__device__ inline void QuarterRound(uint32_t& a, uint32_t& b, uint32_t& c,
                                    uint32_t& d) {
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
__device__ inline void DoubleRound(uint32_t (&x)[kBlockWords]) {
  QuarterRound(x[0], x[4], x[8], x[12]);
  QuarterRound(x[1], x[5], x[9], x[13]);
  QuarterRound(x[2], x[6], x[10], x[14]);
  QuarterRound(x[3], x[7], x[11], x[15]);
  QuarterRound(x[0], x[5], x[10], x[15]);
  QuarterRound(x[1], x[6], x[11], x[12]);
  QuarterRound(x[2], x[7], x[8], x[13]);
  QuarterRound(x[3], x[4], x[9], x[14]);
}

// What a block starts from.
__device__ inline void StartBlock(const uint32_t* key, uint32_t stream,
                                  uint32_t domain, uint64_t block,
                                  uint32_t (&x)[kBlockWords]) {
  constexpr uint32_t kConstants[4] = {kChachaConstants[0], kChachaConstants[1],
                                      kChachaConstants[2], kChachaConstants[3]};
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = kConstants[i];
#pragma unroll
  for (int i = 0; i < kKeyWords; ++i) x[4 + i] = key[i];
  x[12] = static_cast<uint32_t>(block);
  x[13] = static_cast<uint32_t>(block >> 32);
  x[14] = stream;
  x[15] = domain;
}

// Block number `block` of the stream.
__device__ inline void ChachaBlock(const uint32_t* key, uint32_t stream,
                                   uint32_t domain, uint64_t block,
                                   uint32_t (&x)[kBlockWords]) {
  StartBlock(key, stream, domain, block, x);
  for (int round = 0; round < 10; ++round) DoubleRound(x);
  uint32_t start[kBlockWords];
  StartBlock(key, stream, domain, block, start);
#pragma unroll
  for (int w = 0; w < kBlockWords; ++w) x[w] += start[w];
}

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_CHACHA_CUH_
