#include "custom_calls/cpu/noise/gaussian.h"

#include <algorithm>

#include "custom_calls/cpu/float_environment.h"
#include "custom_calls/cpu/pieces.h"

namespace bk {
namespace {

// A block is a set of rows: runs of neighbours in the whole array.
struct Rows {
  int64_t axis;  // dimensions before it number the rows
  int64_t count;
  int64_t length;
};

Rows RowsOf(const BlockShape& shape) {
  Rows rows = {shape.rank, 1, 1};
  while (rows.axis > 0) {
    --rows.axis;
    rows.length *= shape.size[rows.axis];
    if (shape.size[rows.axis] != shape.whole[rows.axis]) break;
  }
  for (int64_t k = 0; k < rows.axis; ++k) rows.count *= shape.size[k];
  return rows;
}

// Where row `row` begins in the whole array.
int64_t RowPosition(const BlockShape& shape, const Rows& rows, int64_t row) {
  int64_t stride = 1;
  int64_t position = 0;
  for (int64_t k = shape.rank - 1; k >= 0; --k) {
    int64_t index = shape.start[k];
    if (k < rows.axis) {
      index += row % shape.size[k];
      row /= shape.size[k];
    }
    position += index * stride;
    stride *= shape.whole[k];
  }
  return position;
}

// Positions are cut at multiples of kChunk, which is whole groups for every
// type, so that no two tasks make the same group.
constexpr int64_t kChunk = 64 * kGroupWords;

struct Range {
  int64_t begin, end;
};

// Part `part` of positions [begin, begin + length); the last may be empty.
Range PartOf(int64_t begin, int64_t length, int64_t part) {
  const int64_t cut = (begin / kChunk + part) * kChunk;
  const int64_t end = begin + length;
  return {std::min(std::max(begin, cut), end), std::min(cut + kChunk, end)};
}

int64_t Parts(int64_t length) { return length == 0 ? 0 : length / kChunk + 2; }

// Vector operations per value, about; decides only what one task takes.
constexpr double kFlopsPerValue = 16;

double FlopsPerPart(int64_t length) {
  return kFlopsPerValue *
         static_cast<double>(std::clamp(length / 2, kGroupWords, kChunk));
}

}  // namespace

template <class T>
void Gaussian(const CpuKernels& kernels, Parallel& parallel,
              const NoiseStream& stream, const BlockShape& shape, const T* x,
              Accumulator<T> stddev, T* out) {
  const Rows rows = RowsOf(shape);
  if (stddev == 0) {
    if (x != out) std::copy_n(x, rows.count * rows.length, out);
    return;
  }
  const int64_t parts = Parts(rows.length);
  const auto run = [&](int64_t begin, int64_t end) {
    const ScopedFloatEnvironment environment;
    for (int64_t item = begin; item < end; ++item) {
      const int64_t row = item / parts;
      const int64_t first = RowPosition(shape, rows, row);
      const Range range = PartOf(first, rows.length, item % parts);
      const int64_t offset = row * rows.length + range.begin - first;
      KernelsFor<T>(kernels).gaussian(
          {stream, stddev, static_cast<uint64_t>(range.begin),
           range.end - range.begin, x + offset, out + offset});
    }
  };
  parallel.For(rows.count * parts, FlopsPerPart(rows.length), run);
}

template void Gaussian(const CpuKernels&, Parallel&, const NoiseStream&,
                       const BlockShape&, const float*, float, float*);
template void Gaussian(const CpuKernels&, Parallel&, const NoiseStream&,
                       const BlockShape&, const BFloat16*, float, BFloat16*);
template void Gaussian(const CpuKernels&, Parallel&, const NoiseStream&,
                       const BlockShape&, const Float16*, float, Float16*);
template void Gaussian(const CpuKernels&, Parallel&, const NoiseStream&,
                       const BlockShape&, const double*, double, double*);

void Gaussians(const CpuKernels& kernels, Parallel& parallel,
               const NoiseStream& stream, float stddev,
               const std::vector<NoiseArray>& arrays) {
  if (stddev == 0) {
    for (const NoiseArray& array : arrays) {
      if (array.x != array.out) std::copy_n(array.x, array.size, array.out);
    }
    return;
  }
  const Pieces pieces(arrays, kChunk);
  const auto run = [&](int64_t begin, int64_t end) {
    const ScopedFloatEnvironment environment;
    for (int64_t item = begin; item < end; ++item) {
      const Piece piece = pieces[item];
      const NoiseArray& array = arrays[piece.array];
      NoiseStream own = stream;
      own.stream = array.stream;
      kernels.f32.gaussian({own, stddev, static_cast<uint64_t>(piece.begin),
                            piece.end - piece.begin, array.x + piece.begin,
                            array.out + piece.begin});
    }
  };
  parallel.For(pieces.Count(), kFlopsPerValue * pieces.MeanSize(), run);
}

void ChachaWords(const CpuKernels& kernels, Parallel& parallel,
                 const NoiseStream& stream, uint64_t position, int64_t count,
                 uint32_t* out) {
  const auto first = static_cast<int64_t>(position);
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const Range range = PartOf(first, count, item);
      kernels.chacha({stream, static_cast<uint64_t>(range.begin),
                      range.end - range.begin, out + range.begin - first});
    }
  };
  parallel.For(Parts(count), FlopsPerPart(count), run);
}

}  // namespace bk
