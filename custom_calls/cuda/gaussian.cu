// 16 threads make a group of ChaCha blocks, each thread the normals of its own
// block; see noise_rows.cuh.
#include "custom_calls/cuda/chacha.cuh"
#include "custom_calls/cuda/gaussian.h"
#include "custom_calls/cuda/noise_rows.cuh"
#include "custom_calls/cuda/platform.cuh"

namespace bk::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kNoiseThreads)
    GaussianKernel(NoiseBlock block, Rows rows, NoiseName name, const T* x,
                   const uint32_t* key, const Accumulator<T>* stddev,
                   const int32_t* start, T* out) {
  using Acc = Accumulator<T>;
  const int64_t units = rows.Units();
  const unsigned lane = threadIdx.x % kLanesOfGroup;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const RowPart<T> part = PartOf(block, rows, start, unit, x, out);
    if (!part.inside || *stddev == 0) {
      part.Fill(lane);
      continue;
    }
    uint32_t words[kBlockWords];
    ChachaBlock(key, name.stream, name.domain, part.Block(lane), words);
    MakeNormals(words, lane, AddedAtOnce<T>{part, *stddev, lane}, Acc{0});
  }
}

__global__ void __launch_bounds__(kNoiseThreads)
    ChachaKernel(NoiseName name, const uint32_t* key, uint64_t position,
                 uint64_t count, int64_t groups, uint32_t* out) {
  const int64_t units = CeilDiv(groups, kNoiseGroups);
  const unsigned lane = threadIdx.x % kLanesOfGroup;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const uint64_t group = position / kGroupWords + unit * kNoiseGroups +
                           threadIdx.x / kLanesOfGroup;
    uint32_t words[kBlockWords];
    ChachaBlock(key, name.stream, name.domain, group * kBlocksPerGroup + lane,
                words);
#pragma unroll
    for (int w = 0; w < kBlockWords; ++w) {
      // Wraps around for words before the first, so that one test is enough.
      const uint64_t k =
          group * kGroupWords + uint64_t{16} * w + lane - position;
      if (k < count) out[k] = words[w];
    }
  }
}

}  // namespace

template <class T>
cudaError_t Gaussian(const NoiseBlock& block, NoiseName name, const T* x,
                     const uint32_t* key, const Accumulator<T>* stddev,
                     const int32_t* start, T* out, cudaStream_t stream) {
  if (block.rank > kMaxNoiseRank) return cudaErrorInvalidValue;
  const Rows rows = RowsOf(block, kGroupValues<Accumulator<T>>);
  return Launch(GaussianKernel<T>, rows.Units(), kNoiseThreads, stream, block,
                rows, name, x, key, stddev, start, out);
}

cudaError_t ChachaWords(NoiseName name, const uint32_t* key, uint64_t position,
                        int64_t count, uint32_t* out, cudaStream_t stream) {
  const auto before = static_cast<int64_t>(position % kGroupWords);
  const int64_t groups = CeilDiv(before + count, kGroupWords);
  return Launch(ChachaKernel, CeilDiv(groups, kNoiseGroups), kNoiseThreads,
                stream, name, key, position, static_cast<uint64_t>(count),
                groups, out);
}

// NOLINTBEGIN(bugprone-macro-parentheses): T is a type
#define BK_INSTANTIATE(T)                                               \
  template cudaError_t Gaussian(const NoiseBlock&, NoiseName, const T*, \
                                const uint32_t*, const Accumulator<T>*, \
                                const int32_t*, T*, cudaStream_t)
BK_INSTANTIATE(float);
BK_INSTANTIATE(BFloat16);
BK_INSTANTIATE(Float16);
BK_INSTANTIATE(double);
#undef BK_INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace bk::cuda
