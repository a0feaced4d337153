// Dense layers: what their drivers and their bodies share. See kernels.h.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_DENSE_KERNELS_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_DENSE_KERNELS_H_

#include <cstdint>

#include "custom_calls/cpu/isa/registers.h"
#include "custom_calls/element.h"

namespace bk {

// Ghost norm: Gram matrices are made in square tiles of at most kGramTile
// positions, GramDepth features at a time. Depth bounds the accumulation chain
// in float and therefore the certified error, see ghost_norm.cc. kDotGroup
// copied rows, 17 or 25 KB of floats, stay in L1; the tiles of both matrices
// and the rows of one block of features stay in L2.
inline constexpr int64_t kGramTile = 136;
inline constexpr int64_t kDotGroup = 8;
inline constexpr int64_t kMaxGramDepth = Registers<64>::kGramDepth;

// Products over rows: one task makes at most kGemmRows x kGemmColumns of the
// result, kGemmDepth rows of the operands at a time. Rows are multiples of
// every micro-tile (6 or 8). The panels of lhs and one of rhs, 144 KB and 12 or
// 36 KB of floats, stay in L2, a panel of rhs in L1 if it fits. Tile registers
// take kGemmStrip columns and kTileGemmDepth rows at a time.
inline constexpr int64_t kGemmRows = 192;
inline constexpr int64_t kGemmColumns = 768;
inline constexpr int64_t kGemmStrip = 96;
inline constexpr int64_t kGemmDepth = 192;
inline constexpr int64_t kTileGemmDepth = 320;

// Scratch that a body may use, in elements of the accumulator type, aligned to
// kScratchAlignment bytes. Panels have at least 4 columns, and begin at an odd
// number of cache lines: at most 2 lines more than they hold. Enough for the
// deeper panels of tile registers, whose elements take half the room, too.
inline constexpr int64_t kPanelSlack = 32;
inline constexpr int64_t kGemmLhsScratch =
    kGemmRows * kTileGemmDepth + kGemmRows / 4 * kPanelSlack;
inline constexpr int64_t kGemmRhsScratch =
    kGemmStrip * kTileGemmDepth + kGemmStrip / 4 * kPanelSlack;
// The direct norm of more than kGemmDepth positions keeps its tile there too.
inline constexpr int64_t kDirectColumns = 192;
inline constexpr int64_t kDirectScratch =
    kGemmLhsScratch + kGemmRhsScratch + kGemmRows * kDirectColumns;
inline constexpr int64_t kGramRows = kGramTile + 8;
inline constexpr int64_t kGramScratch =
    (kGramRows + kDotGroup) * (kMaxGramDepth + kPanelSlack);
inline constexpr int64_t kGramDoubles = 2 * kGramTile * kGramTile;
inline constexpr int64_t kGemmScratch = kGemmLhsScratch + kGemmRhsScratch;
inline constexpr int64_t kScratchAlignment = 64;

// One weight of one example: a [T, d] and g [T, p], in tiles of `block`
// positions.
template <class T>
struct GhostPair {
  const T* a;
  const T* g;
  int64_t positions;
  int64_t d;
  int64_t p;
  int64_t block;
};

// What some pairs of positions add to <a a^T, g g^T>, and what the positions
// among them that belong to this task add to S, the sum over positions t of a
// bound of |a_t| |g_t|.
struct GramPartial {
  double inner;
  double bound;
};

// An example that enters a clipped sum, in the order of the batch.
template <class Acc>
struct LiveExample {
  int64_t index;
  Acc factor;
};

// Rows [m0, m1) and columns [n0, n1) of a matrix.
struct Tile {
  int64_t m0, m1, n0, n1;
};

// out[m0:m1, n0:n1] = sum over live examples i and positions t of
// factor_i * lhs[i, weight, t, m0:m1]^T rhs[i, weight, t, n0:n1], added to what
// is there if `accumulate`.
template <class T>
struct GemmTask {
  const T* lhs;  // [B, N, T, m]
  const T* rhs;  // [B, N, T, n]
  const LiveExample<Accumulator<T>>* live;
  int64_t live_count;
  int64_t weight, weights, positions, m, n;
  Tile tile;
  Accumulator<T>* out;  // [m, n] of this weight
  bool accumulate;
};

// out[i, j] = sum_t lhs[t, m0 + i] rhs[t, n0 + j] for one weight of one
// example, with rows `stride` apart.
template <class T>
struct ProductTask {
  const T* lhs;  // [T, m]
  const T* rhs;  // [T, n]
  int64_t positions, m, n;
  Tile tile;
  Accumulator<T>* out;
  int64_t stride;
};

// out = sum over live examples i of factor_i x[i], for x [B, size].
template <class T>
struct SumTask {
  const T* x;
  const LiveExample<Accumulator<T>>* live;
  int64_t live_count;
  int64_t size;
  Accumulator<T>* out;
};

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_DENSE_KERNELS_H_
