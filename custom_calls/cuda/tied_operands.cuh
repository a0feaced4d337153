// The operands of the cross term of a tied table, and what a tile of its inner
// products adds to it.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_TIED_OPERANDS_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_TIED_OPERANDS_CUH_

#include "custom_calls/cuda/element.cuh"
#include "custom_calls/cuda/gram.cuh"
#include "custom_calls/shapes.h"

namespace bk::cuda {

// What a tile adds to the cross term, and to X, the sum of bounds of
// |left[t, id_s]| |right_t| |g_s|.
struct TiedPartial {
  double inner;
  double bound;
};

struct TiedTiles {
  int64_t rows, columns;
  __host__ __device__ int64_t Count() const { return rows * columns; }
};
__host__ __device__ inline TiedTiles TiedTilesOf(const TiedCrossShape& shape,
                                                 int64_t side) {
  return {CeilDiv(shape.positions, side), CeilDiv(shape.tokens, side)};
}

// One example: left [positions, rows], right [positions, p], ids [tokens],
// g [tokens, p].
template <class T>
struct TiedExample {
  int64_t positions, rows, tokens;
  const T* left;
  const T* right;
  const int32_t* ids;
  const T* g;
  const double* right_length;
  const double* g_length;

  // Whether there is a token s, of a row of the table.
  __device__ bool IsRead(int64_t s) const {
    return s < tokens && ids[s] >= 0 && ids[s] < rows;
  }
  // left[t, id_s].
  __device__ double Weight(int64_t t, int64_t s) const {
    return ToAccumulator(left[t * rows + ids[s]]);
  }
};

template <class T>
struct TiedOperands {
  TiedCrossShape shape;
  const T* left;
  const T* right;
  const int32_t* ids;
  const T* g;
  const double* right_length;
  const double* g_length;

  __device__ TiedExample<T> Of(int64_t i) const {
    const int64_t t = i * shape.positions;
    const int64_t s = i * shape.tokens;
    return {shape.positions,       shape.rows,          shape.tokens,
            left + t * shape.rows, right + t * shape.p, ids + s,
            g + s * shape.p,       right_length + t,    g_length + s};
  }
  // Rows from `first` on.
  __device__ RowTile<T> RightTile(const TiedExample<T>& example,
                                  int64_t first) const {
    const int64_t size = shape.batch * shape.positions * shape.p;
    return {
        example.right, first, shape.positions, shape.p, {right, right + size}};
  }
  __device__ RowTile<T> GradientTile(const TiedExample<T>& example,
                                     int64_t first) const {
    const int64_t size = shape.batch * shape.tokens * shape.p;
    return {example.g, first, shape.tokens, shape.p, {g, g + size}};
  }
};

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_TIED_OPERANDS_CUH_
