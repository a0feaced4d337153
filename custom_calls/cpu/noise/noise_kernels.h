// Noise: what its drivers and its bodies share. See kernels.h.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_NOISE_NOISE_KERNELS_H_
#define BK_JAX_CUSTOM_CALLS_CPU_NOISE_NOISE_KERNELS_H_

#include <cstdint>

#include "custom_calls/element.h"
#include "custom_calls/noise.h"

namespace bk {

// out[i] = x[i] + stddev * normal(position + i), i < count.
template <class T>
struct GaussianTask {
  NoiseStream stream;
  Accumulator<T> stddev;
  uint64_t position;
  int64_t count;
  const T* x;
  T* out;
};

// out[i] = word position + i of the stream, i < count.
struct ChachaTask {
  NoiseStream stream;
  uint64_t position;
  int64_t count;
  uint32_t* out;
};

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_NOISE_NOISE_KERNELS_H_
