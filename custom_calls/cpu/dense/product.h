// What direct norms and per-sample gradients share: the loop over tiles of all
// gradients, and the bound of a sum of squares.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_PRODUCT_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_PRODUCT_H_

#include <vector>

#include "custom_calls/cpu/float_environment.h"
#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/cpu/norm_bound.h"
#include "custom_calls/cpu/scratch.h"
#include "custom_calls/cpu/tiling.h"
#include "custom_calls/parallel.h"
#include "custom_calls/shapes.h"

namespace bk {

// Whether the squares of a tile can be taken from registers, without a tile in
// memory.
inline bool FitsOneBlock(const DenseShape& shape) {
  return shape.positions <= kGemmDepth;
}

// The sum of squares of every tile of a[i,n]^T g[i,n], for all i and n. Tiles
// are written to grad [B, N, d, p] unless that is null. T > 0.
template <class T>
std::vector<double> ProductSquares(const CpuKernels& kernels,
                                   Parallel& parallel, const DenseShape& shape,
                                   const Tiling& tiling, const T* a, const T* g,
                                   Accumulator<T>* grad) {
  using Acc = Accumulator<T>;
  const int64_t tiles = tiling.Tiles();
  std::vector<double> squares(shape.batch * shape.weights * tiles);
  const double flops = 2.0 * static_cast<double>(shape.positions) *
                       static_cast<double>(std::min(shape.d, tiling.rows) *
                                           std::min(shape.p, tiling.columns));
  const bool in_scratch = grad == nullptr && !FitsOneBlock(shape);
  const auto body = [&](int64_t begin, int64_t end) {
    const ScopedFloatEnvironment environment;
    Acc* scratch =
        ThreadScratchOf<Acc>(in_scratch ? kDirectScratch : kGemmScratch);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t pair = item / tiles;
      const int64_t row = pair * shape.positions;
      const Tile tile = TileAt(tiling, shape.d, shape.p, item % tiles);
      Acc* out = in_scratch ? scratch + kGemmScratch : nullptr;
      if (grad != nullptr) {
        out = grad + (pair * shape.d + tile.m0) * shape.p + tile.n0;
      }
      squares[item] = KernelsFor<T>(kernels).product_tile(
          {.lhs = a + row * shape.d,
           .rhs = g + row * shape.p,
           .positions = shape.positions,
           .m = shape.d,
           .n = shape.p,
           .tile = tile,
           .out = out,
           .stride = grad == nullptr ? tiling.columns : shape.p},
          scratch);
    }
  };
  parallel.For(static_cast<int64_t>(squares.size()), flops, body);
  return squares;
}

// An upper bound of the squared norm of one example's gradients, as they were
// computed, from the computed sum of their squares. The entries of a micro-tile
// (at most 8 rows and 3 vectors, each of at most 16 lanes) are squared and
// added in the accumulator type: at most 1 + 8 + 3 + 4 roundings. Micro-tiles
// have at least 4 x 4 entries; their sums, and single entries at edges, are
// added in double. 2 % are added for higher orders. A square below the smallest
// normal number errs by at most half of the smallest denormal one.
template <class Acc>
double SquaresUpper(const DenseShape& shape, const Tiling& tiling,
                    double squares) {
  constexpr double kTileRoundings = 16;
  constexpr int64_t kEdgeEntries = int64_t{8} * 48;
  const int64_t additions = CeilDiv(std::min(shape.d, tiling.rows), 4) *
                                CeilDiv(std::min(shape.p, tiling.columns), 4) +
                            std::min(kEdgeEntries, shape.d * shape.p) +
                            shape.weights * tiling.Tiles() + 16;
  const double relative =
      1.02 * (kTileRoundings * kUnitRoundoff<Acc> +
              static_cast<double>(additions) * kUnitRoundoff<double>);
  const auto entries = static_cast<double>(shape.weights * shape.d * shape.p);
  return squares * (1 + relative) +
         entries * std::numeric_limits<Acc>::denorm_min();
}

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_PRODUCT_H_
