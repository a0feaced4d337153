// Products of warpgroups in the emulation: equality on small integers, and
// mistakes that have to be found.
#include "tests/cuda_on_cpu/warpgroup.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cuda_on_cpu/broken_warpgroups.h"

namespace bk::broken {
namespace {

constexpr int kTerms = 64, kRows = 64, kColumns = 128;

int LeftEntry(int row, int k) { return (row * 7 + k * 3) % 11 - 5; }
int RightEntry(int k, int column) { return (column * 5 + k * 2) % 13 - 6; }

// Integers of at most 8 in size, exact in both formats.
uint16_t BitsOf(bool float16, int integer) {
  const auto x = static_cast<float>(integer);
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  if (!float16) return static_cast<uint16_t>(bits >> 16);
  if (integer == 0) return 0;
  const uint32_t exponent = (bits >> 23 & 0xff) - 127 + 15;
  return static_cast<uint16_t>(bits >> 31 << 15 | exponent << 10 |
                               (bits >> 13 & 0x3ff));
}

struct Outcome {
  cudaError_t error;
  std::string problem;
  std::vector<float> out;
};

Outcome RunProduct(WarpgroupMistake mistake, bool float16, bool rows) {
  std::vector<uint16_t> left(size_t{kRows} * kTerms);
  std::vector<uint16_t> right(size_t{kColumns} * kTerms);
  std::vector<float> out(size_t{kRows} * kColumns);
  for (int row = 0; row < kRows; ++row) {
    for (int k = 0; k < kTerms; ++k) {
      left[rows ? row * kTerms + k : k * kRows + row] =
          BitsOf(float16, LeftEntry(row, k));
    }
  }
  for (int column = 0; column < kColumns; ++column) {
    for (int k = 0; k < kTerms; ++k) {
      right[rows ? column * kTerms + k : k * kColumns + column] =
          BitsOf(float16, RightEntry(k, column));
    }
  }
  emulator::Register(left.data(), left.size() * 2, "left");
  emulator::Register(right.data(), right.size() * 2, "right");
  emulator::Register(out.data(), out.size() * sizeof(float), "out");
  const cudaError_t error = WarpgroupProduct(
      mistake, float16, rows, left.data(), right.data(), out.data());
  emulator::Forget(left.data());
  emulator::Forget(right.data());
  emulator::Forget(out.data());
  return {error, error == cudaSuccess ? "" : emulator::LastProblem(), out};
}

TEST(WarpgroupTest, MultipliesIntegers) {
  for (bool float16 : {false, true}) {
    for (bool rows : {true, false}) {
      SCOPED_TRACE(testing::Message() << "f16 " << float16 << " rows " << rows);
      const Outcome outcome =
          RunProduct(WarpgroupMistake::kNone, float16, rows);
      ASSERT_EQ(outcome.error, cudaSuccess) << outcome.problem;
      for (int e = 0; e < kRows * kColumns; ++e) {
        int sum = 0;
        for (int k = 0; k < kTerms; ++k) {
          sum += LeftEntry(e / kColumns, k) * RightEntry(k, e % kColumns);
        }
        ASSERT_EQ(outcome.out[e], sum) << e / kColumns << ", " << e % kColumns;
      }
    }
  }
}

TEST(WarpgroupTest, SumsAreNotThereBeforeTheWait) {
  const Outcome outcome =
      RunProduct(WarpgroupMistake::kReadSumsEarly, false, true);
  ASSERT_EQ(outcome.error, cudaSuccess) << outcome.problem;
  EXPECT_TRUE(std::isnan(outcome.out[0]));
}

struct Case {
  WarpgroupMistake mistake;
  const char* says;
};

class WarpgroupMistakeTest : public testing::TestWithParam<Case> {};

TEST_P(WarpgroupMistakeTest, IsFound) {
  const Outcome outcome = RunProduct(GetParam().mistake, false, true);
  EXPECT_NE(outcome.error, cudaSuccess);
  EXPECT_THAT(outcome.problem, testing::HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    All, WarpgroupMistakeTest,
    testing::Values(
        Case{WarpgroupMistake::kNoProxyFence, "no proxy fence: an operand"},
        Case{WarpgroupMistake::kNoFence, "wgmma.fence is missing"},
        Case{WarpgroupMistake::kWriteSumsEarly, "sums changed before"},
        Case{WarpgroupMistake::kStoreOperands,
             "which an asynchronous copy or product reads"},
        Case{WarpgroupMistake::kNoWait, "never waited for: wgmma"},
        Case{WarpgroupMistake::kWarpMissing, "divergence in a warpgroup"},
        Case{WarpgroupMistake::kLaneMissing, "divergence in a warp"},
        Case{WarpgroupMistake::kNoSwizzle, "a descriptor without"},
        Case{WarpgroupMistake::kOutside, "out of bounds: an operand"}));

}  // namespace
}  // namespace bk::broken
