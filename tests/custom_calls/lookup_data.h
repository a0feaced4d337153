// Inputs for tests of lookups.
#ifndef BK_JAX_TESTS_CUSTOM_CALLS_LOOKUP_DATA_H_
#define BK_JAX_TESTS_CUSTOM_CALLS_LOOKUP_DATA_H_

#include <cstdint>
#include <random>

#include "tests/custom_calls/test_data.h"

namespace bk {

// Ids in [low, high], from few enough that they repeat.
inline Array<int32_t> Ids(Random& random, int64_t size, int32_t low,
                          int32_t high) {
  std::uniform_int_distribution<int32_t> id(low, high);
  Array<int32_t> ids(size);
  for (int64_t k = 0; k < size; ++k) ids[k] = id(random);
  return ids;
}

// Both sides of vector widths (4, 8, 16 lanes) and of blocks of four or eight
// vectors, of the columns of one task (256, 1024), and 0 and 1.
inline constexpr int64_t kLookupWidths[] = {0,  1,  3,   4,   5,   7,    8,
                                            9,  15, 16,  17,  31,  33,   63,
                                            64, 65, 127, 129, 257, 1023, 1025};

}  // namespace bk

#endif  // BK_JAX_TESTS_CUSTOM_CALLS_LOOKUP_DATA_H_
