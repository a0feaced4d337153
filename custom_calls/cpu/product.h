// What direct norms and per-sample gradients share: the loop over tiles of all
// gradients, and the bound of a sum of squares.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_PRODUCT_H_
#define BK_JAX_CUSTOM_CALLS_CPU_PRODUCT_H_

#include <vector>

#include "custom_calls/cpu/float_environment.h"
#include "custom_calls/cpu/kernels.h"
#include "custom_calls/cpu/norm_bound.h"
#include "custom_calls/cpu/scratch.h"
#include "custom_calls/cpu/tiling.h"
#include "custom_calls/parallel.h"
#include "custom_calls/shapes.h"

namespace bk {

// The sum of squares of every tile of a[i,n]^T g[i,n], for all i and n. Tiles
// are written to grad [B, N, d, p], or to scratch if that is null. T > 0.
template <class T>
std::vector<double> ProductSquares(const CpuKernels& kernels,
                                   Parallel& parallel,
                                   const GhostNormShape& shape,
                                   const Tiling& tiling, const T* a, const T* g,
                                   Accumulator<T>* grad) {
  using Acc = Accumulator<T>;
  const int64_t tiles = tiling.tiles();
  std::vector<double> squares(shape.batch * shape.weights * tiles);
  const double flops = 2.0 * static_cast<double>(shape.positions) *
                       static_cast<double>(std::min(shape.d, tiling.rows) *
                                           std::min(shape.p, tiling.columns));
  const auto body = [&](int64_t begin, int64_t end) {
    const ScopedFloatEnvironment environment;
    Acc* scratch =
        ThreadScratchOf<Acc>(grad == nullptr ? kDirectScratch : kGemmScratch);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t pair = item / tiles;
      const int64_t row = pair * shape.positions;
      const Tile tile = TileAt(tiling, shape.d, shape.p, item % tiles);
      Acc* out = grad == nullptr
                     ? scratch + kGemmScratch
                     : grad + (pair * shape.d + tile.m0) * shape.p + tile.n0;
      squares[item] = KernelsFor<T>(kernels).product_tile(
          {a + row * shape.d, g + row * shape.p, shape.positions, shape.d,
           shape.p, tile.m0, tile.m1, tile.n0, tile.n1, out,
           grad == nullptr ? tiling.columns : shape.p},
          scratch);
    }
  };
  parallel.For(static_cast<int64_t>(squares.size()), flops, body);
  return squares;
}

// An upper bound of the squared norm of one example's gradients, as they were
// written, from the computed sum of their squares. Rows of a strip are squared
// and added in the accumulator type; their sums are added in double, row by
// row and tile by tile. 2 % are added for higher orders. A square below the
// smallest normal number errs by at most half of the smallest denormal one.
template <class Acc>
double SquaresUpper(const CpuKernels& kernels, const GhostNormShape& shape,
                    const Tiling& tiling, double squares) {
  const int64_t roundings =
      GramRoundings(std::min(shape.p, kGemmStrip), LanesOf<Acc>(kernels));
  const int64_t additions =
      std::min(shape.d, tiling.rows) * CeilDiv(tiling.columns, kGemmStrip) +
      shape.weights * tiling.tiles() + 16;
  const double relative =
      1.02 * (static_cast<double>(roundings) * kUnitRoundoff<Acc> +
              static_cast<double>(additions) * kUnitRoundoff<double>);
  const auto entries = static_cast<double>(shape.weights * shape.d * shape.p);
  return squares * (1 + relative) +
         entries * std::numeric_limits<Acc>::denorm_min();
}

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_PRODUCT_H_
