// The emulator runs right kernels right, and says what is wrong with wrong
// ones.
#include "tests/cuda_on_cpu/emulator.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cuda_on_cpu/broken_kernels.h"
#include "tests/cuda_on_cpu/tensor_core.h"

namespace bk::broken {
namespace {

constexpr int64_t kCount = 128;

struct Outcome {
  cudaError_t error;
  std::string problem;
  std::vector<float> out;
};

Outcome RunWith(Mistake mistake) {
  std::vector<float> in(kCount + 64), out(kCount + 64);
  for (int64_t i = 0; i < kCount; ++i) in[i] = static_cast<float>(i);
  emulator::Register(in.data(), kCount * sizeof(float), "in");
  emulator::Register(out.data(), kCount * sizeof(float), "out");
  const cudaError_t error =
      NeighbourSums(mistake, kCount, in.data(), out.data());
  emulator::Forget(in.data());
  emulator::Forget(out.data());
  return {error, error == cudaSuccess ? "" : emulator::LastProblem(), out};
}

TEST(EmulatorTest, RunsARightKernel) {
  const Outcome outcome = RunWith(Mistake::kNone);
  ASSERT_EQ(outcome.error, cudaSuccess) << outcome.problem;
  for (int64_t i = 0; i < kCount; ++i) {
    const int64_t next = i / 64 * 64 + (i + 1) % 64;
    EXPECT_EQ(outcome.out[i], static_cast<float>(i + next));
  }
}

struct Case {
  Mistake mistake;
  const char* says;
};

class MistakeTest : public testing::TestWithParam<Case> {};

TEST_P(MistakeTest, IsFound) {
  const Outcome outcome = RunWith(GetParam().mistake);
  EXPECT_NE(outcome.error, cudaSuccess);
  EXPECT_NE(outcome.problem.find(GetParam().says), std::string::npos)
      << outcome.problem;
}

INSTANTIATE_TEST_SUITE_P(
    All, MistakeTest,
    testing::Values(Case{Mistake::kNoBarrier, "shared memory"},
                    Case{Mistake::kReadPastEnd, "out of bounds: 4 bytes"},
                    Case{Mistake::kWritePastEnd, "out of bounds: 4 bytes"},
                    Case{Mistake::kSharedPastEnd, "out of bounds: 4 bytes"},
                    Case{Mistake::kSharedUnset,
                         "never written: shared memory + 20"},
                    Case{Mistake::kSomeReturn, "divergence at a barrier"},
                    Case{Mistake::kTwoBarriers, "divergence at a barrier"},
                    Case{Mistake::kSameOutput, "race: two writes at out + 0"},
                    Case{Mistake::kLanesMissing, "divergence in a warp"},
                    Case{Mistake::kMisaligned, "misaligned: a load at"}));

// in [16, 16] with in[i][j] = i + j; the sums of its columns.
Outcome RunTile(Mistake mistake) {
  std::vector<float> in(256), out(16);
  for (int k = 0; k < 256; ++k) {
    const int row = k / 16, column = k % 16;
    in[k] = static_cast<float>(row + column);
  }
  emulator::Register(in.data(), in.size() * sizeof(float), "in");
  emulator::Register(out.data(), out.size() * sizeof(float), "out");
  const cudaError_t error = ColumnSums(mistake, in.data(), out.data());
  emulator::Forget(in.data());
  emulator::Forget(out.data());
  return {error, error == cudaSuccess ? "" : emulator::LastProblem(), out};
}

TEST(EmulatorTest, TilesOfWmmaStartWhereAGpuNeedsThem) {
  const Outcome right = RunTile(Mistake::kNone);
  ASSERT_EQ(right.error, cudaSuccess) << right.problem;
  for (int j = 0; j < 16; ++j) EXPECT_EQ(right.out[j], 120 + 16 * j);
  EXPECT_THAT(RunTile(Mistake::kTileMisaligned).problem,
              testing::HasSubstr("misaligned: the tile of a wmma call at"));
  EXPECT_THAT(RunTile(Mistake::kRowsMisaligned).problem,
              testing::HasSubstr("are 68 bytes apart, not a multiple of 16"));
}

// Every term loses what lies below the last place of the largest one, where a
// sum that is truncated once would keep 7 * 3/4 of it.
TEST(TensorCoreTest, EveryTermIsTruncated) {
  const float place = 0x1p-23f;
  const std::vector<float> ones(8, 1.0f);
  std::vector<float> left(8, 0.75f * place);
  left[0] = 1;
  EXPECT_EQ(TensorSum(0, left.data(), ones.data()), 1);
  EXPECT_EQ(
      TensorSum(1, std::vector<float>(8, -0.75f * place).data(), ones.data()),
      1);
  for (float& x : left) x = 1;
  EXPECT_EQ(TensorSum(5, left.data(), ones.data()), 13);
  const std::vector<float> tiny(8, 0x1p-64f);
  EXPECT_EQ(TensorSum(0, tiny.data(), tiny.data()), 0);  // flushed
}

// Two steps of 4 terms, each wrong by 6 last places of the largest term.
TEST(TensorCoreTest, TheErrorIsAsLargeAsAssumed) {
  const float place = 0x1p-23f;
  const std::vector<float> zeros(8);
  emulator::tensor_core_error = -1;
  EXPECT_NEAR(TensorSum(1, zeros.data(), zeros.data()), 1 - 12 * place,
              place / 2);
  emulator::tensor_core_error = 1;
  EXPECT_NEAR(TensorSum(1, zeros.data(), zeros.data()), 1 + 12 * place,
              place / 2);
  EXPECT_EQ(TensorSum(0, zeros.data(), zeros.data()), 0);
  emulator::tensor_core_error = 0;
}

TEST(EmulatorTest, GoesOnAfterAProblem) {
  EXPECT_NE(RunWith(Mistake::kSomeReturn).error, cudaSuccess);
  EXPECT_EQ(RunWith(Mistake::kNone).error, cudaSuccess);
}

}  // namespace
}  // namespace bk::broken
