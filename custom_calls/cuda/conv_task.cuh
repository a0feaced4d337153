// Convolutions on a GPU: sizes, where pixels are, and what a task makes.
//
// A task is a tile of the gradient [kernel offset * cin, groups * cout], summed
// over a slice of the batch. A slice is one example for norms and gradients of
// examples, several for clipped sums.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_CONV_TASK_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_CONV_TASK_CUH_

#include <limits>

#include "custom_calls/cuda/element.cuh"
#include "custom_calls/cuda/platform.cuh"
#include "custom_calls/cuda/reduce.cuh"
#include "custom_calls/shapes.h"

namespace bk::cuda {

__host__ __device__ inline int64_t Volume(const int64_t (&size)[3]) {
  return size[0] * size[1] * size[2];
}
__host__ __device__ inline int64_t KernelSize(const ConvShape& s) {
  return Volume(s.kernel) * s.cin * s.groups * s.cout;
}

// One channel in, one out, for each of several groups.
__host__ __device__ inline bool IsDepthwise(const ConvShape& s) {
  return s.groups > 1 && s.cin == 1 && s.cout == 1;
}

// Squares of a tile of the gradient; a bound of the sum over its entries of
// sum_t x_t^2 sum_t g_t^2; how many parts of it are not exactly zero.
struct ConvPartial {
  double squares;
  double bound;
  double nonzero;
};

// One of `sums` and `partials` is null; `grad` may be.
template <class T>
struct ConvTask {
  ConvShape shape;
  int64_t slices;                // of the batch
  const T* x;                    // [B, images, D, H, W, groups * cin]
  const T* g;                    // [B, images, D', H', W', groups * cout]
  const Accumulator<T>* factor;  // [B], or null: 1
  double* sums;                  // [slices, kernel size]
  Accumulator<T>* grad;          // [slices, kernel size]
  ConvPartial* partials;         // [slices, tiles]

  // Examples of slice n begin here.
  __device__ int64_t Begin(int64_t n) const { return n * shape.batch / slices; }
  __device__ Accumulator<T> Factor(int64_t example) const {
    return factor == nullptr ? Accumulator<T>{1} : factor[example];
  }
  __device__ const T* Image(int64_t example) const {
    return x +
           example * shape.images * Volume(shape.in) * shape.groups * shape.cin;
  }
  __device__ const T* Gradient(int64_t example) const {
    return g + example * shape.images * Volume(shape.out) * shape.groups *
                   shape.cout;
  }
  // Stores entry `n` of a slice's gradient; returns its square as a norm counts
  // it: of what was stored, if it was.
  __device__ double Store(int64_t slice, int64_t n, double value) const {
    const int64_t at = slice * KernelSize(shape) + n;
    if (sums != nullptr) sums[at] = value;
    if (grad != nullptr) {
      grad[at] = static_cast<Accumulator<T>>(value);
      value = static_cast<double>(grad[at]);
    }
    return value * value;
  }
};

// Position `padded` of a dilated axis of `size`, or -1 where it is zero.
__device__ inline int64_t Source(int64_t padded, int64_t dilation,
                                 int64_t size) {
  if (padded < 0) return -1;
  if (dilation != 1) {
    if (padded % dilation != 0) return -1;
    padded /= dilation;
  }
  return padded < size ? padded : -1;
}

// k * dilation for every axis of kernel offset number k.
struct Offset {
  int64_t at[3];
};
__device__ inline Offset OffsetOf(const ConvShape& s, int64_t k) {
  const int64_t w = k % s.kernel[2];
  const int64_t h = k / s.kernel[2] % s.kernel[1];
  const int64_t d = k / s.kernel[2] / s.kernel[1];
  return {{d * s.dilation[0], h * s.dilation[1], w * s.dilation[2]}};
}

// An output pixel: the image that it is in, and t * stride - low.
struct OutputPixel {
  int64_t image;
  int64_t at[3];
};
__device__ inline OutputPixel PixelOf(const ConvShape& s, int64_t t) {
  const int64_t w = t % s.out[2];
  const int64_t h = t / s.out[2] % s.out[1];
  const int64_t d = t / s.out[2] / s.out[1] % s.out[0];
  return {t / s.out[2] / s.out[1] / s.out[0],
          {d * s.stride[0] - s.low[0], h * s.stride[1] - s.low[1],
           w * s.stride[2] - s.low[2]}};
}

// The input pixel of an example that both meet, or -1 outside.
__device__ inline int64_t InputPixel(const ConvShape& s,
                                     const OutputPixel& pixel,
                                     const Offset& offset) {
  int64_t index = pixel.image;
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t at = Source(pixel.at[axis] + offset.at[axis],
                              s.input_dilation[axis], s.in[axis]);
    if (at < 0) return -1;
    index = index * s.in[axis] + at;
  }
  return index;
}

// Squares of the elements of an operand that a thread has read, at most a few
// in the accumulator type before they go to double.
template <class Acc>
struct SquareSum {
  Acc chain = 0;
  double total = 0;
  bool nonzero = false;

  __device__ void Add(Acc v) {
    chain = Fma(v, v, chain);
    nonzero = nonzero || v != 0;
  }
  __device__ void EndChain() {
    total += static_cast<double>(chain);
    chain = 0;
  }
};

// Squares below the smallest normal number are lost; so much is added for each
// of `count` elements, which also covers underflow of products.
template <class Acc>
__device__ double WithSmallest(double squares, int64_t count) {
  const double smallest = std::numeric_limits<Acc>::min();
  return squares + static_cast<double>(count) * smallest;
}

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_CONV_TASK_CUH_
