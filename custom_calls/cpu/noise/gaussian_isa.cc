// Noise and raw words, group by group: the words of 16 ChaCha blocks go to a
// buffer of 1 KB and are transformed from there. Doing both in one loop, with
// the words in registers, was 6 % slower on Zen 3 (2.09 instead of 1.97 ns per
// value and core): 16 words and the constants of the transform spill anyway.
#include "custom_calls/cpu/noise/gaussian_isa.h"

#include "custom_calls/cpu/noise/chacha-inl.h"
#include "custom_calls/cpu/noise/narrow-inl.h"
#include "custom_calls/cpu/noise/normal-inl.h"

namespace bk::BK_ISA {
namespace {

struct alignas(kScratchAlignment) GroupWords {
  uint32_t words[kGroupWords];
};

BK_INLINE void FillGroup(const NoiseStream& stream, uint64_t group,
                         uint32_t* words) {
  for (int64_t first = 0; first < kBlocksPerGroup; first += kBlockLanes) {
    Words block[kBlockWords];
    Blocks(stream, group, first, block);
#pragma GCC unroll 16
    for (int w = 0; w < kBlockWords; ++w) {
      Store(block[w], words + w * kBlocksPerGroup + first);
    }
  }
}

// Values that one group of words makes.
template <class T>
inline constexpr int64_t kGroupValues = kGroupWords * sizeof(uint32_t) /
                                        sizeof(Accumulator<T>);

// out = x + stddev * z for the values of one group. Bits and values come in
// runs of 16; a run of radii is followed by the run of their angles.
template <class T>
BK_INLINE void AddGroup(const uint32_t* words, Accumulator<T> stddev,
                        const T* x, T* out) {
  using Acc = Accumulator<T>;
  constexpr int64_t kRun = kBlocksPerGroup;
  const auto* bytes = reinterpret_cast<const char*>(words);
  for (int64_t run = 0; run < kGroupValues<T>; run += 2 * kRun) {
    for (int64_t i = run; i < run + kRun; i += kLanes<Acc>) {
      const int64_t k = i + kRun;
      const NormalPair<Acc> pair =
          Normals<Acc>(LoadBits<BitsOf<Acc>>(bytes + i * sizeof(Acc)),
                       LoadBits<BitsOf<Acc>>(bytes + k * sizeof(Acc)));
      StoreRounded(Load(x + i) + pair.z0 * stddev, out + i);
      StoreRounded(Load(x + k) + pair.z1 * stddev, out + k);
    }
  }
}

// Values [begin, end) of a group, through a copy that is a whole group.
template <class T>
void AddPart(const uint32_t* words, Accumulator<T> stddev, int64_t begin,
             int64_t end, const T* x, T* out) {
  T whole[kGroupValues<T>] = {};
  const uint64_t bytes = static_cast<uint64_t>(end - begin) * sizeof(T);
  __builtin_memcpy(whole + begin, x, bytes);
  AddGroup<T>(words, stddev, whole, whole);
  __builtin_memcpy(out, whole + begin, bytes);
}

}  // namespace

template <class T>
void GaussianRange(const GaussianTask<T>& task) {
  constexpr auto kSize = static_cast<uint64_t>(kGroupValues<T>);
  GroupWords buffer;
  int64_t done = 0;
  while (done < task.count) {
    const uint64_t position = task.position + static_cast<uint64_t>(done);
    const auto begin = static_cast<int64_t>(position % kSize);
    const int64_t end = Min(kGroupValues<T>, begin + task.count - done);
    FillGroup(task.stream, position / kSize, buffer.words);
    if (end - begin == kGroupValues<T>) {
      AddGroup<T>(buffer.words, task.stddev, task.x + done, task.out + done);
    } else {
      AddPart<T>(buffer.words, task.stddev, begin, end, task.x + done,
                 task.out + done);
    }
    done += end - begin;
  }
}

template void GaussianRange(const GaussianTask<float>&);
template void GaussianRange(const GaussianTask<BFloat16>&);
template void GaussianRange(const GaussianTask<Float16>&);
template void GaussianRange(const GaussianTask<double>&);

void ChachaRange(const ChachaTask& task) {
  constexpr auto kSize = static_cast<uint64_t>(kGroupWords);
  GroupWords buffer;
  int64_t done = 0;
  while (done < task.count) {
    const uint64_t position = task.position + static_cast<uint64_t>(done);
    const auto begin = static_cast<int64_t>(position % kSize);
    const int64_t end = Min(kGroupWords, begin + task.count - done);
    FillGroup(task.stream, position / kSize, buffer.words);
    __builtin_memcpy(task.out + done, buffer.words + begin,
                     static_cast<uint64_t>(end - begin) * sizeof(uint32_t));
    done += end - begin;
  }
}

}  // namespace bk::BK_ISA
