// How a matrix is cut into tiles, one task each: pure functions of the shape.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_TILING_H_
#define BK_JAX_CUSTOM_CALLS_CPU_TILING_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "custom_calls/cpu/dense/dense_kernels.h"

namespace bk {

inline int64_t CeilDiv(int64_t x, int64_t y) { return (x + y - 1) / y; }

inline int64_t PadTo(int64_t x, int64_t multiple) {
  return CeilDiv(x, multiple) * multiple;
}

// Whether there is nothing to compute. The product of sizes would not say so:
// it may overflow, and be 0 by that.
inline bool AnyZero(std::initializer_list<int64_t> sizes) {
  return std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
}

// The smallest multiple of `step` that cuts `size` into as many parts as parts
// of `limit` would.
inline int64_t EvenPart(int64_t size, int64_t limit, int64_t step) {
  size = std::max<int64_t>(size, 1);
  return PadTo(CeilDiv(size, CeilDiv(size, limit)), step);
}

// Tiles of `copies` matrices [m, n].
struct Tiling {
  int64_t rows, columns, row_tiles, column_tiles;
  int64_t Tiles() const { return row_tiles * column_tiles; }
};

// Tiles enough to keep any usual number of threads busy, and a thread among
// few.
inline constexpr int64_t kEnoughTiles = 16, kTilesPerThread = 4;

// Large tiles, as packing is paid once per tile, and a page of a wide result is
// looked up once per tile; but smaller ones as long as there are not `enough`.
inline Tiling ChooseTiling(int64_t copies, int64_t m, int64_t n,
                           int64_t max_columns, int64_t enough) {
  constexpr int64_t kStep = 48;
  Tiling tiling = {};
  for (int64_t shrink : {1, 2, 4, 8, 16}) {
    const int64_t narrower = std::min<int64_t>(shrink, 4);
    const int64_t rows = EvenPart(m, kGemmRows / (shrink / narrower), kStep);
    const int64_t columns = EvenPart(n, max_columns / narrower, kStep);
    tiling = {rows, columns, CeilDiv(m, rows), CeilDiv(n, columns)};
    if (copies * tiling.Tiles() >= enough) break;
  }
  return tiling;
}

inline Tile TileAt(const Tiling& tiling, int64_t m, int64_t n, int64_t item) {
  const int64_t n0 = item % tiling.column_tiles * tiling.columns;
  const int64_t m0 = item / tiling.column_tiles * tiling.rows;
  return {m0, std::min(m0 + tiling.rows, m), n0,
          std::min(n0 + tiling.columns, n)};
}

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_TILING_H_
