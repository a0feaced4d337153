// Noise for arrays of more than 2^32 elements: what the far end gets equals
// what a block that begins there gets.
#include <vector>

#include "custom_calls/cpu/noise/banded_gaussian.h"
#include "custom_calls/cpu/noise/gaussian.h"
#include "custom_calls/reference/gaussian.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/far_memory.h"

namespace bk {
namespace {

constexpr NoiseStream kStream = {{1, 2, 3, 4, 5, 6, 7, 8}, 9, kNoiseDomain};
constexpr int64_t kFar = int64_t{1} << 32;

class NoiseOffsetsTest : public IsaTest {
 protected:
  // Two items, for the last one may be empty.
  FarItems last_items_{2};
};
BK_INSTANTIATE_FOR_EACH_ISA(NoiseOffsetsTest);

TEST_P(NoiseOffsetsTest, LastElementsOfOneRow) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    const int64_t size = kFar + (1 << 14) + 100, start = 0, few = 100;
    const int64_t far_start = size - few;
    FarArray<T> x(size);
    Gaussian<T>(kernels(), last_items_, kStream, {1, &size, &start, &size},
                x.data(), 1, x.data());
    Array<T> zeros(few), expected(few);
    Gaussian<T>(kernels(), serial_, kStream, {1, &few, &far_start, &size},
                zeros.data(), 1, expected.data());
    for (int64_t k = 0; k < few; ++k) {
      ASSERT_EQ(reference::ToDouble(x.Last(few)[k]),
                reference::ToDouble(expected[k]));
    }
  });
}

TEST_P(NoiseOffsetsTest, LastElementsOfSeveralDraws) {
  const int64_t size = kFar + (1 << 14) + 100, start = 0, few = 100;
  const int64_t far_start = size - few;
  const std::vector<NoiseTerm<float>> terms = {{kStream, 1}, {kStream, -0.5F}};
  FarArray<float> x(size);
  BandedGaussian<float>(kernels(), last_items_, terms,
                        {1, &size, &start, &size}, x.data(), x.data());
  Array<float> zeros(few), expected(few);
  BandedGaussian<float>(kernels(), serial_, terms, {1, &few, &far_start, &size},
                        zeros.data(), expected.data());
  for (int64_t k = 0; k < few; ++k) ASSERT_EQ(x.Last(few)[k], expected[k]);
}

// Rows of a block of a larger matrix: position and place in memory differ.
TEST_P(NoiseOffsetsTest, LastRowOfABlock) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    const int64_t size[] = {kFar / 1000 + 2, 1000};
    const int64_t start[] = {5, 7};
    const int64_t whole[] = {size[0] + 5, 2000};
    FarArray<T> x(size[0] * size[1]);
    Gaussian<T>(kernels(), last_items_, kStream, {2, size, start, whole},
                x.data(), 1, x.data());
    const int64_t one_row[] = {1, 1000};
    const int64_t last_row[] = {start[0] + size[0] - 1, 7};
    Array<T> zeros(1000), expected(1000);
    Gaussian<T>(kernels(), serial_, kStream, {2, one_row, last_row, whole},
                zeros.data(), 1, expected.data());
    for (int64_t k = 0; k < 1000; ++k) {
      ASSERT_EQ(reference::ToDouble(x.Last(1000)[k]),
                reference::ToDouble(expected[k]));
    }
  });
}

TEST_P(NoiseOffsetsTest, LastWords) {
  const int64_t count = kFar + (1 << 14) + 100;
  FarArray<uint32_t> words(count);
  ChachaWords(kernels(), last_items_, kStream, 0, count, words.data());
  Array<uint32_t> expected(100);
  ChachaWords(kernels(), serial_, kStream, static_cast<uint64_t>(count - 100),
              100, expected.data());
  for (int64_t k = 0; k < 100; ++k) ASSERT_EQ(words.Last(100)[k], expected[k]);
}

}  // namespace
}  // namespace bk
