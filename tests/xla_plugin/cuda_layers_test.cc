// The operations on several layers, which only GPUs have, with emulated kernels
// behind them: beside those on one layer, and what they refuse.
#include <gmock/gmock.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/xla_plugin/buffers.h"
#include "tests/xla_plugin/run_cuda.h"
#include "xla_plugin/cuda_target.h"
#include "xla_plugin/status.h"

namespace bk {
namespace {

using testing::HasSubstr;

constexpr ffi::DataType kF32 = ffi::F32;

class CudaLayersTest : public testing::Test {
 protected:
  CudaLayersTest() { factor_.Fill(3); }

  // Operands of `layers` layers, [2, .., 3, 4] and [2, .., 3, 5].
  void MakeLayers(int layers, bool with_weights) {
    const Dims left = with_weights ? Dims{2, 2, 3, 4} : Dims{6, 4};
    const Dims right = with_weights ? Dims{2, 2, 3, 5} : Dims{6, 5};
    const Dims sum = with_weights ? Dims{2, 4, 5} : Dims{4, 5};
    for (int l = 0; l < layers; ++l) {
      operands_.emplace_back(kF32, left, "left").Fill(10 + l);
      operands_.emplace_back(kF32, right, "right").Fill(20 + l);
      sums_.emplace_back(kF32, sum, "sum");
    }
  }
  std::vector<Buffer> Pairs() const {
    return {operands_.begin(), operands_.end()};
  }
  std::vector<Buffer> FactorAndPairs() const {
    std::vector<Buffer> all = Pairs();
    all.insert(all.begin(), factor_);
    return all;
  }
  std::vector<Buffer> Sums() const { return {sums_.begin(), sums_.end()}; }

  std::string NormsProblem(const std::vector<Buffer>& operands) {
    return std::string(
        RunCuda("bk_ghost_norms", operands, {norm_, upper_}).message());
  }

  std::deque<Device> operands_, sums_;
  Device factor_{kF32, {2}, "factor"};
  Device norm_{kF32, {2}, "norm"}, upper_{kF32, {2}, "upper"};
};

TEST_F(CudaLayersTest, NormsAreThoseOfEachLayerAddedUp) {
  for (bool with_weights : {false, true}) {
    operands_.clear();
    MakeLayers(3, with_weights);
    std::vector<float> expected(2);
    for (int l = 0; l < 3; ++l) {
      ASSERT_EQ(
          RunCuda("bk_ghost_norm", {operands_[2 * l], operands_[2 * l + 1]},
                  {norm_, upper_}),
          OkStatus());
      for (int i = 0; i < 2; ++i) expected[i] += norm_.values()[i];
    }
    ASSERT_EQ(RunCuda("bk_ghost_norms", Pairs(), {norm_, upper_}), OkStatus());
    EXPECT_EQ(norm_.values(), expected);
    for (int i = 0; i < 2; ++i) {
      EXPECT_GE(upper_.values()[i], expected[i]);
      EXPECT_LE(upper_.values()[i], 1.0405f * expected[i]);
    }
  }
}

TEST_F(CudaLayersTest, SumsAreThoseOfEachLayer) {
  for (bool with_weights : {false, true}) {
    operands_.clear();
    sums_.clear();
    MakeLayers(3, with_weights);
    ASSERT_EQ(RunCuda("bk_clipped_gemms", FactorAndPairs(), Sums()),
              OkStatus());
    for (int l = 0; l < 3; ++l) {
      Device one(kF32, with_weights ? Dims{2, 4, 5} : Dims{4, 5});
      ASSERT_EQ(
          RunCuda("bk_clipped_gemm",
                  {operands_[2 * l], factor_, operands_[2 * l + 1]}, {one}),
          OkStatus());
      EXPECT_EQ(sums_[l].values(), one.values());
    }
  }
}

// bk_jax.ops has the same number: a longer list goes in several calls.
TEST_F(CudaLayersTest, NoMoreLayersThanThereIsRoomFor) {
  MakeLayers(33, false);
  EXPECT_EQ(NormsProblem(Pairs()),
            "bk_ghost_norms: layers: expected 1 to 32 layers, got 33");
  EXPECT_EQ(RunCuda("bk_clipped_gemms", FactorAndPairs(), Sums()).message(),
            "bk_clipped_gemms: layers: expected 1 to 32 layers, got 33");
  EXPECT_EQ(NormsProblem({}),
            "bk_ghost_norms: layers: expected 1 to 32 layers, got 0");
  operands_.clear();
  MakeLayers(32, false);
  EXPECT_EQ(RunCuda("bk_ghost_norms", Pairs(), {norm_, upper_}), OkStatus());
}

TEST_F(CudaLayersTest, ErrorsNameOperationOperandAndLayer) {
  MakeLayers(2, false);
  Device a(kF32, {6, 3}, "a"), g(ffi::BF16, {6, 5}, "g");
  Device norm(kF32, {3}, "norm"), four(kF32, {4}, "factor");
  const std::vector<Buffer> all = Pairs();
  EXPECT_EQ(NormsProblem({all[0], all[1], all[2]}),
            "bk_ghost_norms: layers: expected two operands for each layer, "
            "got 3 operands");
  EXPECT_EQ(NormsProblem({all[0], all[1], a, all[3]}),
            "bk_ghost_norms: a: expected the shape of the first layer, "
            "f32[6,4], got f32[6,3] for layer 2");
  EXPECT_EQ(NormsProblem({all[0], all[1], all[2], g}),
            "bk_ghost_norms: g: expected the shape of the first layer, "
            "f32[6,5], got bf16[6,5] for layer 2");
  EXPECT_THAT(NormsProblem({all[1], g, all[1], g}),
              HasSubstr("bk_ghost_norms: g: expected f32[6,5]"));
  EXPECT_THAT(RunCuda("bk_ghost_norms", all, {norm_, norm}).message(),
              HasSubstr("sq_norm_upper: expected f32[2], got f32[3]"));
  EXPECT_THAT(
      RunCuda("bk_clipped_gemms", FactorAndPairs(), {sums_[0]}).message(),
      HasSubstr("bk_clipped_gemms: number of results: expected 2, got 1"));
  EXPECT_THAT(
      RunCuda("bk_clipped_gemms", FactorAndPairs(), {sums_[0], a}).message(),
      HasSubstr("bk_clipped_gemms: sum: expected f32[4,5], got f32[6,3]"));
  EXPECT_THAT(
      RunCuda("bk_clipped_gemms", {four, all[0], all[1]}, {sums_[0]}).message(),
      HasSubstr("bk_clipped_gemms: lhs: expected the same rows for 4"));
}

TEST_F(CudaLayersTest, EmptyBatches) {
  Device none(kF32, {0}), a(kF32, {0, 1, 3, 4}), g(kF32, {0, 1, 3, 5});
  Device norm(kF32, {0}), upper(kF32, {0});
  MakeLayers(2, false);
  ASSERT_EQ(RunCuda("bk_ghost_norms", {a, g, a, g}, {norm, upper}), OkStatus());
  ASSERT_EQ(RunCuda("bk_clipped_gemms", {none, a, g, a, g}, Sums()),
            OkStatus());
  for (Device& sum : sums_) {
    EXPECT_EQ(sum.values(), std::vector<float>(20, 0));
  }
}

}  // namespace
}  // namespace bk
