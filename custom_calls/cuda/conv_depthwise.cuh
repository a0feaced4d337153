// Depthwise convolutions, one channel in and one out per group: a thread adds
// up one kernel offset of one channel, neighbours have neighbouring channels.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_CONV_DEPTHWISE_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_CONV_DEPTHWISE_CUH_

#include "custom_calls/cuda/conv_task.cuh"
#include "custom_calls/cuda/fma_tile.cuh"

namespace bk::cuda {

inline constexpr int kChannels = 128;

// Kernel offsets times chunks of channels.
__host__ __device__ inline int64_t DepthwiseTiles(const ConvShape& s) {
  return Volume(s.kernel) * CeilDiv(s.groups, kChannels);
}

// One entry of the gradient.
template <class Acc>
struct EntrySums {
  Acc chain = 0;
  double total = 0;
  SquareSum<Acc> x, g;

  __device__ void Add(Acc x_value, Acc g_value) {
    chain = Fma(x_value, g_value, chain);
    x.Add(x_value);
    g.Add(g_value);
  }
  __device__ void EndChain() {
    total += static_cast<double>(chain);
    chain = 0;
    x.EndChain();
    g.EndChain();
  }
};

// Adds line `line` of output pixels, counted over (image, D', H'), of a
// channel.
template <class T>
__device__ void AddLine(const ConvShape& s, const T* x, const T* g,
                        Accumulator<T> factor, const Offset& offset,
                        int64_t line, int64_t channel,
                        EntrySums<Accumulator<T>>& sums) {
  const OutputPixel first = PixelOf(s, line * s.out[2]);
  const int64_t d =
      Source(first.at[0] + offset.at[0], s.input_dilation[0], s.in[0]);
  const int64_t h =
      Source(first.at[1] + offset.at[1], s.input_dilation[1], s.in[1]);
  if (d < 0 || h < 0) return;
  const int64_t row = ((first.image * s.in[0] + d) * s.in[1] + h) * s.in[2];
  for (int64_t w = 0; w < s.out[2]; ++w) {
    const int64_t at = Source(w * s.stride[2] - s.low[2] + offset.at[2],
                              s.input_dilation[2], s.in[2]);
    if (at >= 0) {
      const int64_t t = line * s.out[2] + w;
      sums.Add(ToAccumulator(x[(row + at) * s.groups + channel]),
               factor * ToAccumulator(g[t * s.groups + channel]));
    }
    if (w % kChain == kChain - 1) sums.EndChain();
  }
  sums.EndChain();
}

struct DepthwiseShared {
  double scratch[3][kChannels / 32];
};

template <class T>
__global__ void __launch_bounds__(kChannels, 1)
    ConvDepthwiseKernel(ConvTask<T> task) {
  using Acc = Accumulator<T>;
  BK_SHARED(DepthwiseShared, shared);
  const ConvShape& s = task.shape;
  const int64_t tiles = DepthwiseTiles(s);
  const int64_t lines = s.images * s.out[0] * s.out[1];
  for (int64_t item = blockIdx.x; item < task.slices * tiles;
       item += gridDim.x) {
    const int64_t slice = item / tiles;
    const int64_t k = item % Volume(s.kernel);
    const int64_t channel =
        item % tiles / Volume(s.kernel) * kChannels + threadIdx.x;
    ConvPartial own = {0, 0, 0};
    if (channel < s.groups) {
      const Offset offset = OffsetOf(s, k);
      EntrySums<Acc> sums;
      for (int64_t i = task.Begin(slice); i < task.Begin(slice + 1); ++i) {
        const Acc factor = task.Factor(i);
        for (int64_t line = 0; line < lines && factor != 0; ++line) {
          AddLine(s, task.Image(i), task.Gradient(i), factor, offset, line,
                  channel, sums);
        }
      }
      const int64_t pixels = lines * s.out[2];
      own.squares = task.Store(slice, k * s.groups + channel, sums.total);
      own.bound = WithSmallest<Acc>(sums.x.total, pixels) *
                  WithSmallest<Acc>(sums.g.total, pixels);
      own.nonzero = sums.x.nonzero && sums.g.nonzero ? 1 : 0;
    }
    if (task.partials != nullptr) {
      const ConvPartial sum = {BlockSum(own.squares, shared.scratch[0]),
                               BlockSum(own.bound, shared.scratch[1]),
                               BlockSum(own.nonzero, shared.scratch[2])};
      if (threadIdx.x == 0) task.partials[item] = sum;
    }
    __syncthreads();
  }
}

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_CONV_DEPTHWISE_CUH_
