// Results that have to be equal to the last bit, that of a NaN included.
#ifndef BK_JAX_TESTS_CUSTOM_CALLS_CUDA_SAME_BITS_H_
#define BK_JAX_TESTS_CUSTOM_CALLS_CUDA_SAME_BITS_H_

#include <cstring>
#include <vector>

#include "gtest/gtest.h"

namespace bk::cuda {

template <class T>
void ExpectSameBits(const std::vector<T>& values,
                    const std::vector<T>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): bits are meant
    ASSERT_EQ(std::memcmp(&values[i], &expected[i], sizeof(T)), 0) << i;
  }
}

}  // namespace bk::cuda

#endif  // BK_JAX_TESTS_CUSTOM_CALLS_CUDA_SAME_BITS_H_
