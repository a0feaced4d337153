// Gaussian noise that is a function of key, stream and position alone.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_NOISE_GAUSSIAN_H_
#define BK_JAX_CUSTOM_CALLS_CPU_NOISE_GAUSSIAN_H_

#include <cstdint>
#include <vector>

#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/element.h"
#include "custom_calls/noise.h"
#include "custom_calls/parallel.h"
#include "custom_calls/shapes.h"

namespace bk {

// out[i] = x[i] + stddev * z(stream, position of i in the whole array), where
// z are independent standard normals. x and out may be the same array.
//
// The bits of z depend on the element type (double has its own normals, the
// others share those of float), not on instruction set, threads, or how the
// whole array is cut into blocks. Products and sums are rounded in the
// accumulator type, the sum of a 16-bit type once more when it is stored.
//
//   stddev = 0          x, bit for bit
//   x infinite or NaN   stays what it is (a NaN may become quiet)
//   stddev infinite     every element infinite or NaN; NaN: all NaN
template <class T>
void Gaussian(const CpuKernels& kernels, Parallel& parallel,
              const NoiseStream& stream, const BlockShape& shape, const T* x,
              Accumulator<T> stddev, T* out);

// The same for many whole arrays; `stream.stream` is not used.
void Gaussians(const CpuKernels& kernels, Parallel& parallel,
               const NoiseStream& stream, float stddev,
               const std::vector<NoiseArray>& arrays);

// Words [position, position + count) of the stream.
void ChachaWords(const CpuKernels& kernels, Parallel& parallel,
                 const NoiseStream& stream, uint64_t position, int64_t count,
                 uint32_t* out);

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_NOISE_GAUSSIAN_H_
