// Sizes of the operations. Every array is dense and row-major.
//
// The letters are those of the paper and of the whole project:
//   B  examples of the batch
//   N  independent weights of one form (heads, groups, stacked layers)
//   T  positions of one example that share a weight (tokens, pixels)
//   d  input features, p  output features of a weight [d, p]
#ifndef BK_JAX_CUSTOM_CALLS_SHAPES_H_
#define BK_JAX_CUSTOM_CALLS_SHAPES_H_

#include <cstdint>

namespace bk {

// activations [B, N, T, d], output gradients [B, N, T, p] -> [B], and for
// per-sample gradients [B, N, d, p]
struct DenseShape {
  int64_t batch;
  int64_t weights;
  int64_t positions;
  int64_t d;
  int64_t p;
};

// squared norms [K, B] -> [B]; K counts the terms (layers) to be added.
struct ClipFactorShape {
  int64_t terms;
  int64_t batch;
};

// lhs [B, N, T, m], rhs [B, N, T, n] -> [N, m, n]
struct ClippedGemmShape {
  int64_t batch;
  int64_t weights;
  int64_t positions;
  int64_t m;
  int64_t n;
};

// A block of a larger array: element i of the block is element start + i of the
// whole. Each list has `rank` entries; start + size <= whole.
struct BlockShape {
  int64_t rank;
  const int64_t* size;
  const int64_t* start;
  const int64_t* whole;
};

// ids [B, T], gradients [B, T, p] of rows of a table [rows, p].
struct LookupShape {
  int64_t batch;
  int64_t tokens;
  int64_t p;
  int64_t rows;
};

// A table [rows, p] that is multiplied by, left [B, T, rows] and right
// [B, T, p], and looked up, ids [B, S] and gradients [B, S, p] -> [B]
struct TiedCrossShape {
  int64_t batch;
  int64_t positions;
  int64_t rows;
  int64_t tokens;
  int64_t p;
};

// x [B, size] -> [size]
struct WeightedSumShape {
  int64_t batch;
  int64_t size;
};

// A convolution with up to three spatial dimensions, missing ones in front with
// size 1: x [B, images, D, H, W, groups * cin], output gradients
// [B, images, D', H', W', groups * cout], kernel [kD, kH, kW, cin, groups *
// cout]. Output pixel t meets kernel offset k at t * stride + k * dilation -
// low of the input with input_dilation - 1 zeros between pixels; outside there
// are zeros.
struct ConvShape {
  int64_t batch;
  int64_t images;  // of one example
  int64_t in[3];
  int64_t out[3];
  int64_t kernel[3];
  int64_t stride[3];
  int64_t low[3];
  int64_t input_dilation[3];
  int64_t dilation[3];
  int64_t groups;
  int64_t cin;   // of one group
  int64_t cout;  // of one group
};

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_SHAPES_H_
