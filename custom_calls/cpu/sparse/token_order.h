// Tokens in the order of their ids.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_SPARSE_TOKEN_ORDER_H_
#define BK_JAX_CUSTOM_CALLS_CPU_SPARSE_TOKEN_ORDER_H_

#include <algorithm>
#include <cstdint>

namespace bk {

// See sparse_kernels.h; a token number must be below kMaxTokens.
inline constexpr int64_t kMaxTokens = int64_t{1} << 32;

inline uint64_t TokenKey(int32_t id, int64_t token) {
  return static_cast<uint64_t>(id) << 32 | static_cast<uint64_t>(token);
}
inline int64_t IdOfKey(uint64_t key) { return static_cast<int64_t>(key >> 32); }

// Where the keys of the id of keys[begin] end.
inline int64_t SegmentEnd(const uint64_t* keys, int64_t begin, int64_t count) {
  int64_t end = begin + 1;
  while (end < count && keys[end] >> 32 == keys[begin] >> 32) ++end;
  return end;
}

// Sorts `count` keys; `spare` holds as many. A stable sort by one byte of the
// key after the other, lowest first, starting with the id, for tokens are in
// order already; bytes that are equal everywhere, as the upper ones of most
// vocabularies are, cost one look. Returns where the result is: keys or spare.
uint64_t* SortKeys(uint64_t* keys, uint64_t* spare, int64_t count);

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_SPARSE_TOKEN_ORDER_H_
