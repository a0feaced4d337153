#include "tests/cuda_on_cpu/bank_conflicts.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tests/cuda_on_cpu/emulator.h"

namespace bk::emulator {
namespace {

constexpr int kBanks = 32;
constexpr int64_t kBankBytes = 4;
constexpr size_t kPhaseBytes = size_t{kBanks} * kBankBytes;

// The same access of the lanes of a warp; nullptr where a lane does not make
// it.
struct Together {
  std::array<const void*, kWarpSize> addresses = {};
  size_t bytes = 0;
  const char* what = "";
};
using Code = const void*;
struct WarpAccesses {
  std::map<std::pair<Code, int>, Together> all;     // by code and repetition
  std::map<std::pair<Code, int>, int> repetitions;  // by code and lane
};

bool counting = false;
int worst = 0;
std::string worst_text;

WarpAccesses& AccessesOf(uint32_t warp) {
  static auto* accesses =
      new std::vector<WarpAccesses>(kMaxThreads / kWarpSize);
  return (*accesses)[warp];
}

int Wavefronts(const void* const* addresses, int lanes, size_t bytes) {
  std::array<std::set<int64_t>, kBanks> words;
  for (int lane = 0; lane < lanes; ++lane) {
    if (addresses[lane] == nullptr) continue;
    const int64_t begin = SharedOffset(addresses[lane]);
    const int64_t end = begin + static_cast<int64_t>(bytes);
    for (int64_t word = begin / kBankBytes; word * kBankBytes < end; ++word) {
      words[word % kBanks].insert(word);
    }
  }
  size_t most = 0;
  for (const auto& bank : words) most = std::max(most, bank.size());
  return static_cast<int>(most);
}

}  // namespace

void NotePhase(const void* const* addresses, int lanes, size_t bytes,
               const char* what) {
  if (!counting) return;
  const int wavefronts = Wavefronts(addresses, lanes, bytes);
  if (wavefronts <= worst) return;
  worst = wavefronts;
  worst_text = std::to_string(worst) + " wavefronts for one: " + what + " of " +
               std::to_string(bytes) + " bytes per lane, at offsets";
  for (int lane = 0; lane < lanes; ++lane) {
    if (addresses[lane] == nullptr) continue;
    worst_text += " " + std::to_string(SharedOffset(addresses[lane]));
  }
}

void CountBankConflicts(bool count) {
  counting = count;
  if (!count) return;
  worst = 0;
  worst_text.clear();
}
int WorstBankConflict() { return worst; }
std::string WorstBankConflictText() { return worst_text; }

void NoteSharedAccess(uint32_t thread, const void* code, const void* address,
                      size_t bytes, const char* what) {
  if (!counting || code == nullptr || SharedOffset(address) < 0) return;
  WarpAccesses& accesses = AccessesOf(thread / kWarpSize);
  const int lane = static_cast<int>(thread % kWarpSize);
  const int repetition = accesses.repetitions[{code, lane}]++;
  Together& together = accesses.all[{code, repetition}];
  together.addresses[lane] = address;
  together.bytes = bytes;
  together.what = what;
}

void EndOfAccesses(uint32_t warp) {
  if (!counting) return;
  WarpAccesses& accesses = AccessesOf(warp);
  for (const auto& [key, together] : accesses.all) {
    const size_t fit = kPhaseBytes / std::max<size_t>(together.bytes, 1);
    const int lanes = static_cast<int>(std::clamp<size_t>(fit, 1, kWarpSize));
    for (int first = 0; first < kWarpSize; first += lanes) {
      NotePhase(together.addresses.data() + first, lanes, together.bytes,
                together.what);
    }
  }
  accesses.all.clear();
  accesses.repetitions.clear();
}

}  // namespace bk::emulator
