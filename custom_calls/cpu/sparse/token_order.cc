#include "custom_calls/cpu/sparse/token_order.h"

#include <algorithm>
#include <array>
#include <utility>

namespace bk {
namespace {

// Below this many keys comparing them is faster than counting bytes.
constexpr int64_t kRadixKeys = 64;

int64_t ByteOf(uint64_t key, int shift) {
  return static_cast<int64_t>(key >> shift & 0xff);
}

}  // namespace

uint64_t* SortKeys(uint64_t* keys, uint64_t* spare, int64_t count) {
  if (count < kRadixKeys) {
    std::sort(keys, keys + count);
    return keys;
  }
  for (int shift = 32; shift < 64; shift += 8) {
    std::array<int64_t, 256> next = {};
    for (int64_t k = 0; k < count; ++k) ++next[ByteOf(keys[k], shift)];
    if (next[ByteOf(keys[0], shift)] == count) continue;
    int64_t before = 0;
    for (int64_t& entry : next) before += std::exchange(entry, before);
    for (int64_t k = 0; k < count; ++k) {
      spare[next[ByteOf(keys[k], shift)]++] = keys[k];
    }
    std::swap(keys, spare);
  }
  return keys;
}

}  // namespace bk
