// A thread makes its block of every key, one after the other, and keeps the sum
// of what it drew in registers: 16 floats or 8 doubles. The array is read and
// written once, however many keys there are.
#include "custom_calls/cuda/banded_gaussian.h"
#include "custom_calls/cuda/chacha.cuh"
#include "custom_calls/cuda/noise_rows.cuh"
#include "custom_calls/cuda/platform.cuh"

namespace bk::cuda {
namespace {

// Every draw has a key and a deviation; all of them on the device.
template <class T>
struct Draws {
  const uint32_t* keys;
  const T* stddevs;
  int64_t count;

  __device__ bool AnyNoise() const {
    for (int64_t k = 0; k < count; ++k) {
      if (stddevs[k] != 0) return true;
    }
    return false;
  }
};

// Adds to the sums of a thread, a rounding for the product and one for the sum.
template <class T>
struct Summed {
  T (&sums)[kThreadValues<T>];
  T stddev;

  __device__ void Take(int k, T z) const { sums[k] = sums[k] + z * stddev; }
};

template <class T>
__global__ void __launch_bounds__(kNoiseThreads)
    BandedGaussianKernel(NoiseBlock block, Rows rows, NoiseName name,
                         const T* x, Draws<T> draws, const int32_t* start,
                         T* out) {
  const int64_t units = rows.Units();
  const unsigned lane = threadIdx.x % kLanesOfGroup;
  // A number and not a bool: nvcc keeps it in a register, a predicate it
  // spills.
  const int64_t drawn = draws.AnyNoise() ? draws.count : 0;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const RowPart<T> part = PartOf(block, rows, start, unit, x, out);
    if (!part.inside || drawn == 0) {
      part.Fill(lane);
      continue;
    }
    T sums[kThreadValues<T>] = {};
    for (int64_t k = 0; k < drawn; ++k) {
      // The same for all threads, as MakeNormals wants it.
      if (draws.stddevs[k] == 0) continue;
      uint32_t words[kBlockWords];
      ChachaBlock(draws.keys + k * kKeyWords, name.stream, name.domain,
                  part.Block(lane), words);
      MakeNormals(words, lane, Summed<T>{sums, draws.stddevs[k]}, T{0});
    }
#pragma unroll
    for (int k = 0; k < kThreadValues<T>; ++k) {
      part.Add(PlaceOf<T>(k, lane), sums[k]);
    }
  }
}

}  // namespace

template <class T>
cudaError_t BandedGaussian(const NoiseBlock& block, NoiseName name, const T* x,
                           const uint32_t* keys, const T* stddevs,
                           int64_t terms, const int32_t* start, T* out,
                           cudaStream_t stream) {
  if (block.rank > kMaxNoiseRank) return cudaErrorInvalidValue;
  const Rows rows = RowsOf(block, kGroupValues<T>);
  return Launch(BandedGaussianKernel<T>, rows.Units(), kNoiseThreads, stream,
                block, rows, name, x, Draws<T>{keys, stddevs, terms}, start,
                out);
}

// NOLINTBEGIN(bugprone-macro-parentheses): T is a type
#define BK_INSTANTIATE(T)                                                     \
  template cudaError_t BandedGaussian(const NoiseBlock&, NoiseName, const T*, \
                                      const uint32_t*, const T*, int64_t,     \
                                      const int32_t*, T*, cudaStream_t)
BK_INSTANTIATE(float);
BK_INSTANTIATE(double);
#undef BK_INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace bk::cuda
