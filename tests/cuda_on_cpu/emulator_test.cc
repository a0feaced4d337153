// The emulator runs right kernels right, and says what is wrong with wrong
// ones.
#include "tests/cuda_on_cpu/emulator.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cuda_on_cpu/broken_kernels.h"

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
                    Case{Mistake::kLanesMissing, "divergence in a warp"}));

TEST(EmulatorTest, GoesOnAfterAProblem) {
  EXPECT_NE(RunWith(Mistake::kSomeReturn).error, cudaSuccess);
  EXPECT_EQ(RunWith(Mistake::kNone).error, cudaSuccess);
}

}  // namespace
}  // namespace bk::broken
