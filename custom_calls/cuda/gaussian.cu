// 16 threads make a group of ChaCha blocks, each thread the normals of its own
// block: radius and angle of a pair are words of the same block. A double takes
// two words, which lie in neighbouring threads.
#include "custom_calls/cuda/chacha.cuh"
#include "custom_calls/cuda/element.cuh"
#include "custom_calls/cuda/gaussian.h"
#include "custom_calls/cuda/normal.cuh"
#include "custom_calls/cuda/platform.cuh"

namespace bk::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kLanesOfGroup = kBlocksPerGroup;
constexpr int kGroups = kThreads / kLanesOfGroup;  // of one thread block
constexpr unsigned kWholeWarp = 0xffffffffu;

// Values that one group of words makes.
template <class Acc>
constexpr int64_t kGroupValues = kGroupWords * 4 / int64_t{sizeof(Acc)};

// A block is a set of rows, runs of neighbours in the whole array: dimensions
// before `axis` number the rows. A row meets at most `parts` groups.
struct Rows {
  int axis;
  int64_t count;
  int64_t length;
  int64_t parts;
};

Rows RowsOf(const NoiseBlock& block, int64_t group) {
  Rows rows = {block.rank, 1, 1, 0};
  while (rows.axis > 0) {
    --rows.axis;
    rows.length *= block.size[rows.axis];
    if (block.size[rows.axis] != block.whole[rows.axis]) break;
  }
  for (int k = 0; k < rows.axis; ++k) rows.count *= block.size[k];
  rows.parts = rows.length == 0 ? 0 : CeilDiv(rows.length, group) + 1;
  return rows;
}

// Where row `row` begins in the whole array; -1 if the block is not inside.
__device__ int64_t RowPosition(const NoiseBlock& block, const int32_t* start,
                               const Rows& rows, int64_t row) {
  int64_t stride = 1;
  int64_t position = 0;
  for (int k = block.rank - 1; k >= 0; --k) {
    int64_t index = start[k];
    if (index < 0 || index > block.whole[k] - block.size[k]) return -1;
    if (k < rows.axis) {
      index += row % block.size[k];
      row /= block.size[k];
    }
    position += index * stride;
    stride *= block.whole[k];
  }
  return position;
}

// Stores that round once, to nearest and ties to even; see
// cpu/noise/narrow-inl.h.
__device__ void StoreRounded(float x, float* to) { *to = x; }
__device__ void StoreRounded(double x, double* to) { *to = x; }
__device__ void StoreRounded(float x, BFloat16* to) {
  const uint32_t bits = ToBits(x);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
  to->bits = static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40 : rounded);
}
__device__ void StoreRounded(float x, Float16* to) {
  const uint32_t bits = ToBits(x);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t normal =
      (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  const uint32_t subnormal = ToBits(FromBits(magnitude) + 0.5F) - 0x3f000000;
  const uint32_t finite = magnitude < (113u << 23) ? subnormal : normal;
  const uint32_t special = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
  const uint32_t half = magnitude >= 0x477ff000 ? special : finite;  // 65520
  to->bits = static_cast<uint16_t>(half | ((bits >> 16) & 0x8000));
}

// What one group of threads works on: positions [group, group + kGroupValues)
// of the whole array, of which [first, end) belong to the row at x and out.
template <class T>
struct RowPart {
  uint64_t group;
  uint64_t first, end;
  const T* x;
  T* out;
  Accumulator<T> stddev;

  __device__ void Add(uint64_t place, Accumulator<T> z) const {
    const uint64_t position = group + place;
    if (position < first || position >= end) return;
    const uint64_t k = position - first;
    StoreRounded(ToAccumulator(x[k]) + z * stddev, out + k);
  }
};

// The normals of a block, from its words.
template <class T>
__device__ void AddBlock(const uint32_t (&words)[kBlockWords], unsigned lane,
                         const RowPart<T>& part, float /*accumulator*/) {
#pragma unroll
  for (int w = 0; w < kBlockWords; w += 2) {
    const Normals<float> pair = NormalsOf<float>(words[w], words[w + 1]);
    part.Add(16 * w + lane, pair.z0);
    part.Add(16 * (w + 1) + lane, pair.z1);
  }
}

// Low words are in even lanes, high words in odd ones. Of each four words of a
// lane two are for radii, two for angles; an even lane makes the first pair, an
// odd one the second.
__device__ uint64_t JoinWords(bool odd, uint32_t first, uint32_t second) {
  const uint32_t own = odd ? second : first;
  const uint32_t other = __shfl_xor_sync(kWholeWarp, odd ? first : second, 1);
  return odd ? uint64_t{own} << 32 | other : uint64_t{other} << 32 | own;
}
template <class T>
__device__ void AddBlock(const uint32_t (&words)[kBlockWords], unsigned lane,
                         const RowPart<T>& part, double /*accumulator*/) {
  const bool odd = lane % 2 != 0;
#pragma unroll
  for (int w = 0; w < kBlockWords; w += 4) {
    const uint64_t radius = JoinWords(odd, words[w], words[w + 1]);
    const uint64_t angle = JoinWords(odd, words[w + 2], words[w + 3]);
    const Normals<double> pair = NormalsOf<double>(radius, angle);
    const unsigned place = 8 * (w + (odd ? 1 : 0)) + lane / 2;
    part.Add(place, pair.z0);
    part.Add(place + 16, pair.z1);
  }
}

// Without noise x is copied; outside of the whole array all is NaN.
template <class T>
__device__ void FillPart(const RowPart<T>& part, bool inside, unsigned lane) {
  for (uint64_t k = lane; k < kGroupValues<Accumulator<T>>;
       k += kLanesOfGroup) {
    const uint64_t position = part.group + k;
    if (position < part.first || position >= part.end) continue;
    const uint64_t at = position - part.first;
    if (inside) {
      part.out[at] = part.x[at];
    } else {
      StoreRounded(FromBits(ToBits(Accumulator<T>{0}) - 1), part.out + at);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    GaussianKernel(NoiseBlock block, Rows rows, NoiseName name, const T* x,
                   const uint32_t* key, const Accumulator<T>* stddev,
                   const int32_t* start, T* out) {
  using Acc = Accumulator<T>;
  const int64_t items = rows.count * rows.parts;
  const int64_t units = CeilDiv(items, kGroups);
  const unsigned lane = threadIdx.x % kLanesOfGroup;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t item = unit * kGroups + threadIdx.x / kLanesOfGroup;
    const int64_t row = item / rows.parts;
    const int64_t at = RowPosition(block, start, rows, row);
    const uint64_t first = at < 0 ? 0 : at;
    const uint64_t group = first / kGroupValues<Acc> + item % rows.parts;
    RowPart<T> part = {group * kGroupValues<Acc>,
                       first,
                       item < items ? first + rows.length : first,
                       x + row * rows.length,
                       out + row * rows.length,
                       *stddev};
    if (at < 0 || part.stddev == 0) {
      FillPart(part, at >= 0, lane);
      continue;
    }
    uint32_t words[kBlockWords];
    ChachaBlock(key, name.stream, name.domain, group * kBlocksPerGroup + lane,
                words);
    AddBlock(words, lane, part, Acc{0});
  }
}

__global__ void __launch_bounds__(kThreads)
    ChachaKernel(NoiseName name, const uint32_t* key, uint64_t position,
                 uint64_t count, int64_t groups, uint32_t* out) {
  const int64_t units = CeilDiv(groups, kGroups);
  const unsigned lane = threadIdx.x % kLanesOfGroup;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const uint64_t group =
        position / kGroupWords + unit * kGroups + threadIdx.x / kLanesOfGroup;
    uint32_t words[kBlockWords];
    ChachaBlock(key, name.stream, name.domain, group * kBlocksPerGroup + lane,
                words);
#pragma unroll
    for (int w = 0; w < kBlockWords; ++w) {
      // Wraps around for words before the first, so that one test is enough.
      const uint64_t k =
          group * kGroupWords + uint64_t{16} * w + lane - position;
      if (k < count) out[k] = words[w];
    }
  }
}

}  // namespace

template <class T>
cudaError_t Gaussian(const NoiseBlock& block, NoiseName name, const T* x,
                     const uint32_t* key, const Accumulator<T>* stddev,
                     const int32_t* start, T* out, cudaStream_t stream) {
  if (block.rank > kMaxNoiseRank) return cudaErrorInvalidValue;
  const Rows rows = RowsOf(block, kGroupValues<Accumulator<T>>);
  return Launch(GaussianKernel<T>, CeilDiv(rows.count * rows.parts, kGroups),
                kThreads, stream, block, rows, name, x, key, stddev, start,
                out);
}

cudaError_t ChachaWords(NoiseName name, const uint32_t* key, uint64_t position,
                        int64_t count, uint32_t* out, cudaStream_t stream) {
  const auto before = static_cast<int64_t>(position % kGroupWords);
  const int64_t groups = CeilDiv(before + count, kGroupWords);
  return Launch(ChachaKernel, CeilDiv(groups, kGroups), kThreads, stream, name,
                key, position, static_cast<uint64_t>(count), groups, out);
}

// NOLINTBEGIN(bugprone-macro-parentheses): T is a type
#define BK_INSTANTIATE(T)                                               \
  template cudaError_t Gaussian(const NoiseBlock&, NoiseName, const T*, \
                                const uint32_t*, const Accumulator<T>*, \
                                const int32_t*, T*, cudaStream_t)
BK_INSTANTIATE(float);
BK_INSTANTIATE(BFloat16);
BK_INSTANTIATE(Float16);
BK_INSTANTIATE(double);
#undef BK_INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace bk::cuda
