// What kernels of noise share: which values of a block a thread makes, from
// which words, and where it adds them.
//
// 16 threads make a group of ChaCha blocks, each thread the normals of its own
// block: radius and angle of a pair are words of the same block. A double takes
// two words, which lie in neighbouring threads.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_NOISE_ROWS_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_NOISE_ROWS_CUH_

#include "custom_calls/cuda/chacha.cuh"
#include "custom_calls/cuda/element.cuh"
#include "custom_calls/cuda/gaussian.h"
#include "custom_calls/cuda/normal.cuh"
#include "custom_calls/cuda/platform.cuh"

namespace bk::cuda {

constexpr int kNoiseThreads = 128;
constexpr int kLanesOfGroup = kBlocksPerGroup;
constexpr int kNoiseGroups = kNoiseThreads / kLanesOfGroup;  // of a block
constexpr unsigned kWholeWarp = 0xffffffffu;

// Values that one group of words makes, and one thread of it.
template <class Acc>
constexpr int64_t kGroupValues = kGroupWords * 4 / int64_t{sizeof(Acc)};
template <class Acc>
constexpr int kThreadValues =
    static_cast<int>(kGroupValues<Acc>) / kLanesOfGroup;

// A block is a set of rows, runs of neighbours in the whole array: dimensions
// before `axis` number the rows. A row meets at most `parts` groups.
struct Rows {
  int axis;
  int64_t count;
  int64_t length;
  int64_t parts;

  // Rounds of blocks of threads.
  __host__ __device__ int64_t Units() const {
    return CeilDiv(count * parts, kNoiseGroups);
  }
};

inline Rows RowsOf(const NoiseBlock& block, int64_t group) {
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
__device__ inline int64_t RowPosition(const NoiseBlock& block,
                                      const int32_t* start, const Rows& rows,
                                      int64_t row) {
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
__device__ inline void StoreRounded(float x, float* to) { *to = x; }
__device__ inline void StoreRounded(double x, double* to) { *to = x; }
__device__ inline void StoreRounded(float x, BFloat16* to) {
  const uint32_t bits = ToBits(x);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
  to->bits = static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40 : rounded);
}
__device__ inline void StoreRounded(float x, Float16* to) {
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
  using Acc = Accumulator<T>;

  uint64_t group;
  uint64_t first, end;
  const T* x;
  T* out;
  bool inside;  // the whole array; the same for all parts of a block

  // Number of this lane's ChaCha block.
  __device__ uint64_t Block(unsigned lane) const {
    return group / kGroupValues<Acc> * kBlocksPerGroup + lane;
  }

  __device__ void Add(uint64_t place, Acc noise) const {
    const uint64_t position = group + place;
    if (position < first || position >= end) return;
    const uint64_t k = position - first;
    StoreRounded(ToAccumulator(x[k]) + noise, out + k);
  }

  // Without noise x is copied; outside of the whole array all is NaN.
  __device__ void Fill(unsigned lane) const {
    for (uint64_t k = lane; k < kGroupValues<Acc>; k += kLanesOfGroup) {
      const uint64_t position = group + k;
      if (position < first || position >= end) continue;
      const uint64_t at = position - first;
      if (inside) {
        out[at] = x[at];
      } else {
        StoreRounded(FromBits(ToBits(Acc{0}) - 1), out + at);
      }
    }
  }
};

// The part of this thread in the `unit`th round of a grid; beyond the last one
// it is empty.
template <class T>
__device__ inline RowPart<T> PartOf(const NoiseBlock& block, const Rows& rows,
                                    const int32_t* start, int64_t unit,
                                    const T* x, T* out) {
  constexpr int64_t kValues = kGroupValues<Accumulator<T>>;
  const int64_t item = unit * kNoiseGroups + threadIdx.x / kLanesOfGroup;
  const int64_t row = item / rows.parts;
  const int64_t at = RowPosition(block, start, rows, row);
  const uint64_t first = at < 0 ? 0 : at;
  return {(first / kValues + item % rows.parts) * kValues,
          first,
          item < rows.count * rows.parts ? first + rows.length : first,
          x + row * rows.length,
          out + row * rows.length,
          at >= 0};
}

// Low words are in even lanes, high words in odd ones. Of each four words of a
// lane two are for radii, two for angles; an even lane makes the first pair, an
// odd one the second.
__device__ inline uint64_t JoinWords(bool odd, uint32_t first,
                                     uint32_t second) {
  const uint32_t own = odd ? second : first;
  const uint32_t other = __shfl_xor_sync(kWholeWarp, odd ? first : second, 1);
  return odd ? uint64_t{own} << 32 | other : uint64_t{other} << 32 | own;
}

// The normals of a block, from its words: taker.Take(k, z) for each of
// k < kThreadValues, in order, where z has the place PlaceOf(k) of its group.
// All threads of a warp call it together.
template <class Taker>
__device__ inline void MakeNormals(const uint32_t (&words)[kBlockWords],
                                   unsigned /*lane*/, Taker&& taker,
                                   float /*accumulator*/) {
#pragma unroll
  for (int w = 0; w < kBlockWords; w += 2) {
    const Normals<float> pair = NormalsOf<float>(words[w], words[w + 1]);
    taker.Take(w, pair.z0);
    taker.Take(w + 1, pair.z1);
  }
}
template <class Taker>
__device__ inline void MakeNormals(const uint32_t (&words)[kBlockWords],
                                   unsigned lane, Taker&& taker,
                                   double /*accumulator*/) {
  const bool odd = lane % 2 != 0;
#pragma unroll
  for (int w = 0; w < kBlockWords; w += 4) {
    const uint64_t radius = JoinWords(odd, words[w], words[w + 1]);
    const uint64_t angle = JoinWords(odd, words[w + 2], words[w + 3]);
    const Normals<double> pair = NormalsOf<double>(radius, angle);
    taker.Take(w / 2, pair.z0);
    taker.Take(w / 2 + 1, pair.z1);
  }
}

// A run of 16 floats has one of each lane. A run of doubles has one of each
// even lane, then one of each odd lane.
template <class Acc>
__device__ inline unsigned PlaceOf(int k, unsigned lane) {
  const unsigned in_run =
      sizeof(Acc) == 4 ? lane : kLanesOfGroup / 2 * (lane % 2) + lane / 2;
  return kLanesOfGroup * k + in_run;
}

// Adds each normal where it belongs as soon as it is made.
template <class T>
struct AddedAtOnce {
  const RowPart<T>& part;
  Accumulator<T> stddev;
  unsigned lane;

  __device__ void Take(int k, Accumulator<T> z) const {
    part.Add(PlaceOf<Accumulator<T>>(k, lane), z * stddev);
  }
};

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_NOISE_ROWS_CUH_
