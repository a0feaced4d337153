// Gaussian noise and words of ChaCha20 on a GPU: the bits of the CPU's.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_GAUSSIAN_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_GAUSSIAN_H_

#include "custom_calls/cuda/runtime.h"
#include "custom_calls/element.h"
#include "custom_calls/noise.h"

namespace bk::cuda {

// Dimensions of the arrays that noise is added to.
inline constexpr int kMaxNoiseRank = 16;

// A block of a larger array, see BlockShape. Where it starts is known on the
// device only.
struct NoiseBlock {
  int rank;
  int64_t size[kMaxNoiseRank];
  int64_t whole[kMaxNoiseRank];
};

// The two words that are known when a program is made; the key is an operand.
struct NoiseName {
  uint32_t stream;
  uint32_t domain;
};

// out[i] = x[i] + *stddev * z(position of i in the whole array): the table of
// cpu/noise/gaussian.h, and its bits except for those of a NaN. key [8], stddev
// [] and start [rank] are in device memory.
//
//   start < 0 or start + size > whole | all of out is NaN: noise must not be
//                                     | used twice; on the CPU it is an error
//   rank > kMaxNoiseRank              | cudaErrorInvalidValue
template <class T>
cudaError_t Gaussian(const NoiseBlock& block, NoiseName name, const T* x,
                     const uint32_t* key, const Accumulator<T>* stddev,
                     const int32_t* start, T* out, cudaStream_t stream);

// Words [position, position + count) of the stream; key [8] on the device.
cudaError_t ChachaWords(NoiseName name, const uint32_t* key, uint64_t position,
                        int64_t count, uint32_t* out, cudaStream_t stream);

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_GAUSSIAN_H_
