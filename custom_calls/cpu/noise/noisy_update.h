// Noise and optimizer in one pass: sums of clipped gradients in, parameters and
// moments of the next step out, each array read and written once.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_NOISE_NOISY_UPDATE_H_
#define BK_JAX_CUSTOM_CALLS_CPU_NOISE_NOISY_UPDATE_H_

#include <cstdint>
#include <vector>

#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/noise.h"
#include "custom_calls/parallel.h"

namespace bk {

// The sum of a parameter, and the arrays that are updated, which may be the
// same before and after.
struct UpdateArray {
  uint32_t stream;
  int64_t size;
  const float* sum;
  const float* from[kMaxUpdated];
  float* to[kMaxUpdated];
};

// For every array: gradient = scale * (sum + stddev * z), where z are the
// normals that Gaussian adds to an array of this stream, bit for bit; then the
// update of `optimizer`, see UpdateTask. `stream.stream` is not used.
//
//   stddev = 0   gradient = scale * sum
//
// As in XLA's own code, gradients, moments and updates that are too small for a
// normal number are 0.
void NoisyUpdate(const CpuKernels& kernels, Parallel& parallel,
                 const NoiseStream& stream, Optimizer optimizer,
                 const UpdateNumbers& numbers,
                 const std::vector<UpdateArray>& arrays);

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_NOISE_NOISY_UPDATE_H_
