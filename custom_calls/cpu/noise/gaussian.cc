#include "custom_calls/cpu/noise/gaussian.h"

#include <algorithm>

#include "custom_calls/cpu/float_environment.h"
#include "custom_calls/cpu/noise/noise_ranges.h"
#include "custom_calls/cpu/pieces.h"

namespace bk {
namespace {

// Vector operations per value, about; decides only what one task takes.
constexpr double kFlopsPerValue = 16;

}  // namespace

template <class T>
void Gaussian(const CpuKernels& kernels, Parallel& parallel,
              const NoiseStream& stream, const BlockShape& shape, const T* x,
              Accumulator<T> stddev, T* out) {
  const NoiseRanges ranges(shape);
  if (stddev == 0) {
    if (x != out) std::copy_n(x, ranges.Elements(), out);
    return;
  }
  const auto run = [&](int64_t begin, int64_t end) {
    const ScopedFloatEnvironment environment;
    for (int64_t item = begin; item < end; ++item) {
      const NoiseRange range = ranges[item];
      KernelsFor<T>(kernels).gaussian({stream, stddev, range.position,
                                       range.count, x + range.offset,
                                       out + range.offset});
    }
  };
  parallel.For(ranges.Count(), kFlopsPerValue * ranges.MeanSize(), run);
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
  const Pieces pieces(arrays, kNoiseChunk);
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
      const PositionRange range = PartOf(first, count, item);
      kernels.chacha({stream, static_cast<uint64_t>(range.begin),
                      range.end - range.begin, out + range.begin - first});
    }
  };
  parallel.For(Parts(count), kFlopsPerValue * PartSize(count), run);
}

}  // namespace bk
