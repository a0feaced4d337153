// Noise that combines the draws of several keys, on a GPU in one pass over the
// array: the bits of the CPU's.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_BANDED_GAUSSIAN_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_BANDED_GAUSSIAN_H_

#include "custom_calls/cuda/gaussian.h"
#include "custom_calls/cuda/runtime.h"
#include "custom_calls/noise.h"

namespace bk::cuda {

// out[i] = x[i] + ((stddevs[0] z_0[i] + stddevs[1] z_1[i]) + ...), where z_k
// are the normals that Gaussian adds to this block for keys[k]. Products and
// sums are rounded in this order: the table of cpu/noise/banded_gaussian.h, and
// its bits except for those of a NaN. keys [terms, 8], stddevs [terms] and
// start [rank] are in device memory. T is float or double; out may be x.
//
//   start < 0 or start + size > whole | all of out is NaN, see Gaussian
//   rank > kMaxNoiseRank              | cudaErrorInvalidValue
template <class T>
cudaError_t BandedGaussian(const NoiseBlock& block, NoiseName name, const T* x,
                           const uint32_t* keys, const T* stddevs,
                           int64_t terms, const int32_t* start, T* out,
                           cudaStream_t stream);

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_BANDED_GAUSSIAN_H_
