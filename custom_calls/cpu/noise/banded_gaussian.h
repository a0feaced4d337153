// Noise that is a combination of the draws of several keys, in one pass over
// the array: nothing is kept of the draws.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_NOISE_BANDED_GAUSSIAN_H_
#define BK_JAX_CUSTOM_CALLS_CPU_NOISE_BANDED_GAUSSIAN_H_

#include <vector>

#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/noise.h"
#include "custom_calls/parallel.h"
#include "custom_calls/shapes.h"

namespace bk {

// One draw, and what it is multiplied by.
template <class T>
struct NoiseTerm {
  NoiseStream stream;
  T scale;
};

// out[i] = x[i] + ((scale_0 z_0[i] + scale_1 z_1[i]) + ...), where z_k are the
// normals that Gaussian adds to this block for stream k. Products and sums are
// rounded in this order, whatever the instruction set, the number of threads
// and the block. T is float or double; x and out may be the same array.
//
//   scale_k = 0         z_k is not made, and adds nothing
//   all scales 0        x, bit for bit
template <class T>
void BandedGaussian(const CpuKernels& kernels, Parallel& parallel,
                    const std::vector<NoiseTerm<T>>& terms,
                    const BlockShape& shape, const T* x, T* out);

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_NOISE_BANDED_GAUSSIAN_H_
