#include "custom_calls/cpu/noise/noisy_update.h"

#include <algorithm>

#include "custom_calls/cpu/float_environment.h"
#include "custom_calls/cpu/pieces.h"

namespace bk {
namespace {

// Values of one task: whole groups of words, so that no two tasks make the same
// group.
constexpr int64_t kPiece = 64 * kGroupWords;

// Values whose noisy sums stay in L1 between the two kernels: 4 KB.
constexpr int64_t kBlock = 4 * kGroupWords;

// Noise, division and memory, about; decides only what one task takes.
constexpr double kFlopsPerValue = 32;

// Values [begin, begin + count) of an array.
void UpdateBlock(const CpuKernels& kernels, const NoiseStream& stream,
                 Optimizer optimizer, const UpdateNumbers& numbers,
                 const UpdateArray& array, int64_t begin, int64_t count) {
  alignas(kScratchAlignment) float noisy[kBlock];
  const float* sum = array.sum + begin;
  if (numbers.stddev != 0) {
    const ScopedFloatEnvironment environment;
    kernels.f32.gaussian({stream, numbers.stddev, static_cast<uint64_t>(begin),
                          count, sum, noisy});
    sum = noisy;
  }
  const ScopedFloatEnvironment environment(Underflow::kToZero);
  UpdateTask task = {optimizer, numbers, count, sum, {}, {}};
  for (int64_t k = 0; k < Updated(optimizer); ++k) {
    task.from[k] = array.from[k] + begin;
    task.to[k] = array.to[k] + begin;
  }
  kernels.update(task);
}

}  // namespace

void NoisyUpdate(const CpuKernels& kernels, Parallel& parallel,
                 const NoiseStream& stream, Optimizer optimizer,
                 const UpdateNumbers& numbers,
                 const std::vector<UpdateArray>& arrays) {
  const Pieces pieces(arrays, kPiece);
  const auto body = [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const Piece piece = pieces[item];
      const UpdateArray& array = arrays[piece.array];
      NoiseStream own = stream;
      own.stream = array.stream;
      for (int64_t first = piece.begin; first < piece.end; first += kBlock) {
        UpdateBlock(kernels, own, optimizer, numbers, array, first,
                    std::min(kBlock, piece.end - first));
      }
    }
  };
  parallel.For(pieces.Count(), kFlopsPerValue * pieces.MeanSize(), body);
}

}  // namespace bk
