// Lookups: what their drivers and their bodies share. See kernels.h.
//
// A token is one row of g [B, T, p]; it belongs to row `id` of a table. Tokens
// are ordered by key: the id in the upper half, the token's number in the
// lower, so that equal ids are neighbours and keep the order of the tokens.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_SPARSE_SPARSE_KERNELS_H_
#define BK_JAX_CUSTOM_CALLS_CPU_SPARSE_SPARSE_KERNELS_H_

#include <cstdint>

#include "custom_calls/element.h"

namespace bk {

// Columns of one task. A wide row is split so that a batch of one example, or
// a table of which one row is hot, has work for every thread; sorting again
// for each part of the norm costs a twentieth of reading it.
inline constexpr int64_t kSegmentColumns = 1024;
inline constexpr int64_t kScatterColumns = 256;

// Tied cross term: tiles of kCrossTile x kCrossTile inner products (a multiple
// of the micro-tiles: 3, 4, 6), kCrossDepth features at a time. Depth bounds
// the accumulation chain in float and therefore the certified error.
inline constexpr int64_t kCrossTile = 48;
inline constexpr int64_t kCrossDepth = 512;

inline constexpr uint64_t kTokenMask = 0xffffffff;

// Columns [column0, column1) of the tokens `keys` of g [*, p], all of one id.
template <class T>
struct Segment {
  const T* g;
  int64_t p;
  int64_t column0, column1;
  const uint64_t* keys;
  int64_t count;
};

// |sum of the tokens|^2, and the sum of |token|^2, which bounds its rounding
// error; the latter is 0 for a single token, whose sum is exact.
struct SegmentSquares {
  double sum;
  double tokens;
};

// row[column0:column1) += factor[i] * g[i, t] for the tokens (i, t).
template <class T>
struct ScatterTask {
  Segment<T> segment;
  int64_t positions;             // T: token k is of example k / T
  const Accumulator<T>* factor;  // [B]
  Accumulator<T>* row;           // [p]
};

// One example of a tied table: left [T, rows], right [T, p], ids [S], g [S, p].
template <class T>
struct CrossTask {
  const T* left;
  const T* right;
  const int32_t* ids;
  const T* g;
  int64_t positions;
  int64_t rows;
  int64_t tokens;
  int64_t p;
};

// What positions [t, t + kCrossTile) add to sum_ts left[t, id_s] (right_t .
// g_s), and to the sum of bounds of |left[t, id_s]| |right_t| |g_s|.
struct CrossPartial {
  double inner;
  double bound;
};

template <class T>
struct SparseKernels {
  SegmentSquares (*segment_squares)(const Segment<T>& segment);
  void (*scatter_segment)(const ScatterTask<T>& task);
  CrossPartial (*cross_tile_row)(const CrossTask<T>& task,
                                 int64_t first_position);
};

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_SPARSE_SPARSE_KERNELS_H_
