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

// What an optimizer does with a gradient g, its moments m, v and a parameter x.
// Moments are updated first; x += step * u.
//
//   kSgd       u = g
//   kMomentum  m = g + decay m     u = m
//   kNesterov  m = g + decay m     u = g + decay m
//   kAdam      m = gain g + decay m
//              v = second_gain g^2 + second_decay v
//              u = unbias m /
//                  (sqrt(second_unbias v + epsilon_root) + epsilon)
//   kAdamW     the same, and weight_decay x is added to u
enum class Optimizer { kSgd, kMomentum, kNesterov, kAdam, kAdamW };

// python/bk_jax/ops/noisy_update.py has the same list.
struct UpdateNumbers {
  float stddev;
  float scale;  // of the sum: 1 / what it is divided by
  float step;
  float decay;
  float gain;
  float second_decay;
  float second_gain;
  float unbias;
  float second_unbias;
  float epsilon_root;
  float epsilon;
  float weight_decay;
};

// Arrays that an update changes: the parameter, then the moments that the
// optimizer has.
inline constexpr int64_t kMaxUpdated = 3;

inline constexpr int64_t Updated(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::kSgd:
      return 1;
    case Optimizer::kMomentum:
    case Optimizer::kNesterov:
      return 2;
    case Optimizer::kAdam:
    case Optimizer::kAdamW:
      break;
  }
  return 3;
}

// The update of `count` values by g = scale * sum.
struct UpdateTask {
  Optimizer optimizer;
  UpdateNumbers numbers;
  int64_t count;
  const float* sum;
  const float* from[kMaxUpdated];
  float* to[kMaxUpdated];
};

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_NOISE_NOISE_KERNELS_H_
