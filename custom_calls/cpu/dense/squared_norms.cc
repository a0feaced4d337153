#include "custom_calls/cpu/dense/squared_norms.h"

#include <algorithm>
#include <type_traits>

#include "custom_calls/cpu/float_environment.h"
#include "custom_calls/cpu/norm_bound.h"
#include "custom_calls/cpu/pieces.h"

namespace bk {
namespace {

// Elements that one task reads. Sums within a piece and over pieces are double.
constexpr int64_t kPiece = 1 << 14;

struct Partial {
  double squares = 0;
  bool zero = true;
};

// Squares of floats do not underflow in double, those of doubles do.
template <class T>
bool IsZero(const T* x, int64_t count, double squares) {
  if (squares != 0) return false;
  if constexpr (std::is_same_v<T, double>) {
    return std::all_of(x, x + count, [](double value) { return value == 0; });
  }
  return true;
}

}  // namespace

template <class T>
void SquaredNorms(const CpuKernels& kernels, Parallel& parallel, int64_t batch,
                  const std::vector<ExampleRows<T>>& arrays,
                  Accumulator<T>* sq_norm, Accumulator<T>* sq_norm_upper) {
  const Pieces pieces(arrays, kPiece);
  const int64_t count = pieces.Count();
  std::vector<Partial> partials(batch * count);
  const double flops = 4.0 * pieces.MeanSize();
  const auto body = [&](int64_t begin, int64_t end) {
    const ScopedFloatEnvironment environment;
    for (int64_t item = begin; item < end; ++item) {
      const Piece piece = pieces[item % count];
      const ExampleRows<T>& rows = arrays[piece.array];
      const T* x = rows.x + item / count * rows.size + piece.begin;
      const int64_t length = piece.end - piece.begin;
      const double squares = KernelsFor<T>(kernels).squares(x, length);
      partials[item] = {squares, IsZero(x, length, squares)};
    }
  };
  parallel.For(batch * count, flops, body);

  const ScopedFloatEnvironment environment;
  // Of a square itself, along the vectors of a piece, over a few sums and their
  // lanes, over pieces.
  int64_t longest = 0;
  for (const auto& array : arrays) longest = std::max(longest, array.size);
  const auto roundings = static_cast<double>(
      CeilDiv(std::min(longest, kPiece), LanesOf<double>(kernels)) + count +
      16);
  for (int64_t i = 0; i < batch; ++i) {
    Partial sum;
    for (int64_t item = i * count; item < (i + 1) * count; ++item) {
      sum.squares += partials[item].squares;
      sum.zero = sum.zero && partials[item].zero;
    }
    StoreCertified<Accumulator<T>>({sum.squares, 0, roundings, sum.zero},
                                   sq_norm + i, sq_norm_upper + i);
  }
}

template void SquaredNorms(const CpuKernels&, Parallel&, int64_t,
                           const std::vector<ExampleRows<float>>&, float*,
                           float*);
template void SquaredNorms(const CpuKernels&, Parallel&, int64_t,
                           const std::vector<ExampleRows<BFloat16>>&, float*,
                           float*);
template void SquaredNorms(const CpuKernels&, Parallel&, int64_t,
                           const std::vector<ExampleRows<Float16>>&, float*,
                           float*);
template void SquaredNorms(const CpuKernels&, Parallel&, int64_t,
                           const std::vector<ExampleRows<double>>&, double*,
                           double*);

}  // namespace bk
