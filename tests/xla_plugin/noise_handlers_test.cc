// What handlers of noise accept and what they say otherwise.
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/xla_plugin/buffers.h"
#include "tests/xla_plugin/run_cpu.h"
#include "xla_plugin/ffi_frame.h"

namespace bk {
namespace {

std::string GaussianError(const std::vector<int64_t>& whole,
                          const TestBuffer& x, const TestBuffer& key,
                          const TestBuffer& stddev, const TestBuffer& start,
                          const TestBuffer& out) {
  return std::string(RunCpu("bk_gaussian", {x, key, stddev, start}, {out},
                            {{"stream", 0}, {"whole", whole}})
                         .message());
}

TEST(GaussianHandlerTest, ComputesForEveryType) {
  for (ffi::DataType type : {ffi::F32, ffi::BF16, ffi::F16, ffi::F64}) {
    EXPECT_EQ(GaussianError({9, 3}, {type, {2, 3}}, {ffi::U32, {8}},
                            {AccumulatorType(type), {}}, {ffi::S32, {2}},
                            {type, {2, 3}}),
              "");
    EXPECT_EQ(
        GaussianError({}, {type, {}}, {ffi::U32, {8}},
                      {AccumulatorType(type), {}}, {ffi::S32, {0}}, {type, {}}),
        "");
  }
  // Operands arrive: the block from row 1 on is the second half of the whole.
  TestBuffer both(ffi::F32, {2, 40});
  TestBuffer one(ffi::F32, {1, 40});
  TestBuffer key(ffi::U32, {8});
  TestBuffer stddev(ffi::F32, {});
  TestBuffer start(ffi::S32, {2});
  key.data<uint32_t>()[3] = 17;
  *stddev.data<float>() = 2;
  EXPECT_EQ(GaussianError({2, 40}, both, key, stddev, start, both), "");
  start.data<int32_t>()[0] = 1;
  EXPECT_EQ(GaussianError({2, 40}, one, key, stddev, start, one), "");
  for (int i = 0; i < 40; ++i) {
    EXPECT_NE(one.data<float>()[i], 0);
    EXPECT_EQ(one.data<float>()[i], both.data<float>()[40 + i]);
  }
}

TEST(GaussianHandlerTest, NamesOperationOperandExpectedAndGot) {
  const ffi::DataType f32 = ffi::F32;
  const ffi::DataType u32 = ffi::U32;
  const ffi::DataType s32 = ffi::S32;
  EXPECT_EQ(GaussianError({2}, {f32, {2}}, {u32, {2}}, {f32, {}}, {s32, {1}},
                          {f32, {2}}),
            "bk_gaussian: key: expected u32[8], got u32[2]");
  EXPECT_EQ(GaussianError({2}, {ffi::BF16, {2}}, {u32, {8}}, {ffi::BF16, {}},
                          {s32, {1}}, {ffi::BF16, {2}}),
            "bk_gaussian: stddev: expected f32[], got bf16[]");
  EXPECT_EQ(GaussianError({2}, {f32, {2}}, {u32, {8}}, {f32, {}}, {s32, {2}},
                          {f32, {2}}),
            "bk_gaussian: start: expected s32[1], got s32[2]");
  EXPECT_EQ(GaussianError({2}, {f32, {2}}, {u32, {8}}, {f32, {}}, {s32, {1}},
                          {f32, {3}}),
            "bk_gaussian: out: expected f32[2], got f32[3]");
  EXPECT_EQ(GaussianError({2, 2}, {f32, {2}}, {u32, {8}}, {f32, {}}, {s32, {1}},
                          {f32, {2}}),
            "bk_gaussian: whole: expected 1 sizes, got 2");
  EXPECT_EQ(GaussianError({5, 1}, {f32, {2, 2}}, {u32, {8}}, {f32, {}},
                          {s32, {2}}, {f32, {2, 2}}),
            "bk_gaussian: start: expected a block of size (2,2) within "
            "whole=(5,1), got (0,0)");
  const int64_t large = int64_t{1} << 32;
  EXPECT_EQ(GaussianError({large, large}, {f32, {2, 2}}, {u32, {8}}, {f32, {}},
                          {s32, {2}}, {f32, {2, 2}}),
            "bk_gaussian: whole: expected less than 2^63 elements, got "
            "(4294967296,4294967296)");
  EXPECT_EQ(GaussianError({2}, {s32, {2}}, {u32, {8}}, {f32, {}}, {s32, {1}},
                          {s32, {2}}),
            "bk_gaussian: x: expected f32, bf16, f16 or f64, got s32");
}

TEST(GaussiansHandlerTest, IsTheNoiseOfEachArray) {
  TestBuffer key(ffi::U32, {8}), stddev(ffi::F32, {}), start(ffi::S32, {2});
  TestBuffer x(ffi::F32, {2, 3}), noise(ffi::F32, {2, 3}), y(ffi::F32, {});
  const auto run = [&](const std::vector<Buffer>& arrays,
                       const std::vector<Buffer>& results,
                       std::vector<int64_t> streams) {
    std::vector<Buffer> operands = {key, stddev};
    operands.insert(operands.end(), arrays.begin(), arrays.end());
    return RunCpu("bk_gaussians", operands, results,
                  {{"streams", std::move(streams)}});
  };
  *stddev.data<float>() = 3;
  ASSERT_EQ(RunCpu("bk_gaussian", {x, key, stddev, start}, {noise},
                   {{"stream", 7}, {"whole", std::vector<int64_t>{2, 3}}}),
            OkStatus());
  EXPECT_EQ(run({y, x}, {y, x}, {0, 7}), OkStatus());
  EXPECT_NE(*y.data<float>(), 0);
  for (int i = 0; i < 6; ++i) {
    EXPECT_NE(x.data<float>()[i], 0);
    EXPECT_EQ(x.data<float>()[i], noise.data<float>()[i]);
  }
  EXPECT_EQ(run({}, {}, {}), OkStatus());
  EXPECT_EQ(run({y, x}, {y, x}, {0}).message(),
            "bk_gaussians: streams: expected one for each array and result, "
            "got 1 for 2 and 2");
  EXPECT_EQ(run({x}, {y}, {0}).message(),
            "bk_gaussians: out: expected f32[2,3], got f32[]");
  EXPECT_EQ(run({key}, {x}, {0}).message(),
            "bk_gaussians: x: expected f32[8], got u32[8]");
}

std::string BandedGaussianError(const TestBuffer& x, const TestBuffer& key,
                                const TestBuffer& stddev,
                                const TestBuffer& start) {
  const std::vector<int64_t> whole = {9, 3};
  return std::string(RunCpu("bk_banded_gaussian", {x, key, stddev, start}, {x},
                            {{"stream", 0}, {"whole", whole}})
                         .message());
}

TEST(BandedGaussianHandlerTest, AddsTheDrawsOfItsKeys) {
  TestBuffer x(ffi::F32, {2, 3}), y(ffi::F32, {2, 3}), start(ffi::S32, {2});
  TestBuffer keys(ffi::U32, {2, 8}), stddevs(ffi::F32, {2});
  TestBuffer key(ffi::U32, {8}), stddev(ffi::F32, {});
  start.data<int32_t>()[0] = 4;
  keys.data<uint32_t>()[8 + 3] = key.data<uint32_t>()[3] = 17;
  stddevs.data<float>()[1] = *stddev.data<float>() = 2;
  EXPECT_EQ(BandedGaussianError(x, keys, stddevs, start), "");
  EXPECT_EQ(GaussianError({9, 3}, y, key, stddev, start, y), "");
  for (int i = 0; i < 6; ++i) {
    EXPECT_NE(x.data<float>()[i], 0);
    EXPECT_EQ(x.data<float>()[i], y.data<float>()[i]);
  }
}

TEST(BandedGaussianHandlerTest, NamesOperationOperandExpectedAndGot) {
  const ffi::DataType f32 = ffi::F32;
  const TestBuffer x(f32, {2, 3});
  const TestBuffer start(ffi::S32, {2});
  EXPECT_EQ(BandedGaussianError(x, {ffi::U32, {3, 8}}, {f32, {2}}, start),
            "bk_banded_gaussian: key: expected u32[2,8], got u32[3,8]");
  EXPECT_EQ(BandedGaussianError(x, {ffi::U32, {8}}, {f32, {}}, start),
            "bk_banded_gaussian: stddev: expected rank 1, got f32[]");
  EXPECT_EQ(BandedGaussianError({ffi::BF16, {2, 3}}, {ffi::U32, {2, 8}},
                                {f32, {2}}, start),
            "bk_banded_gaussian: x: expected f32 or f64, got bf16");
  TestBuffer far(ffi::S32, {2});
  far.data<int32_t>()[0] = 8;
  EXPECT_EQ(BandedGaussianError(x, {ffi::U32, {2, 8}}, {f32, {2}}, far),
            "bk_banded_gaussian: start: expected a block of size (2,3) within "
            "whole=(9,3), got (8,0)");
}

class NoisyUpdateHandlerTest : public testing::Test {
 protected:
  NoisyUpdateHandlerTest() {
    float* numbers = numbers_.data<float>();
    numbers[1] = 0.5F;   // scale
    numbers[2] = -0.5F;  // step
    numbers[3] = 0.5F;   // decay
  }
  std::string Run(const std::vector<Buffer>& arrays,
                  const std::vector<Buffer>& results,
                  const std::string& optimizer = "momentum",
                  std::vector<int64_t> streams = {0}) {
    std::vector<Buffer> operands = {key_, numbers_};
    operands.insert(operands.end(), arrays.begin(), arrays.end());
    const MapAttributes::Map map = {{"optimizer", optimizer},
                                    {"streams", std::move(streams)}};
    return std::string(
        RunCpu("bk_noisy_update", operands, results, map).message());
  }
  TestBuffer key_{ffi::U32, {8}}, numbers_{ffi::F32, {12}};
  TestBuffer x_{ffi::F32, {2, 3}}, y_{ffi::F32, {}};
};

TEST_F(NoisyUpdateHandlerTest, TakesEveryOptimizerAndManyArrays) {
  EXPECT_EQ(Run({x_, x_}, {x_}, "sgd"), "");
  EXPECT_EQ(Run({x_, x_, x_}, {x_, x_}, "nesterov"), "");
  EXPECT_EQ(Run({x_, x_, x_, x_}, {x_, x_, x_}, "adam"), "");
  EXPECT_EQ(Run({x_, y_, x_, y_}, {x_, y_}, "sgd", {0, 7}), "");
  EXPECT_EQ(Run({}, {}, "adamw", {}), "");
}

TEST_F(NoisyUpdateHandlerTest, OperandsArriveInTheRightPlaces) {
  TestBuffer sum(ffi::F32, {}), x(ffi::F32, {}), m(ffi::F32, {});
  TestBuffer new_x(ffi::F32, {}), new_m(ffi::F32, {});
  *sum.data<float>() = 4;
  *x.data<float>() = 3;
  *m.data<float>() = 8;
  EXPECT_EQ(
      Run({y_, sum, y_, x, y_, m}, {y_, new_x, y_, new_m}, "momentum", {0, 1}),
      "");
  EXPECT_EQ(*new_x.data<float>(), 0);
  EXPECT_EQ(*new_m.data<float>(), 6);
  EXPECT_EQ(*x.data<float>(), 3);
}

// Streams are those of bk_gaussian.
TEST_F(NoisyUpdateHandlerTest, DrawsTheNoiseOfItsStreams) {
  TestBuffer noise(ffi::F32, {2, 3}), stddev(ffi::F32, {}),
      start(ffi::S32, {2});
  TestBuffer sum(ffi::F32, {2, 3}), x(ffi::F32, {2, 3});
  *stddev.data<float>() = numbers_.data<float>()[0] = 3;
  ASSERT_EQ(RunCpu("bk_gaussian", {sum, key_, stddev, start}, {noise},
                   {{"stream", 7}, {"whole", std::vector<int64_t>{2, 3}}}),
            OkStatus());
  EXPECT_EQ(Run({y_, sum, y_, x}, {y_, x}, "sgd", {0, 7}), "");
  for (int i = 0; i < 6; ++i) {
    EXPECT_NE(x.data<float>()[i], 0);
    EXPECT_EQ(x.data<float>()[i], noise.data<float>()[i] / -4);
  }
}

TEST_F(NoisyUpdateHandlerTest, NamesOperationOperandExpectedAndGot) {
  const TestBuffer wide(ffi::F64, {2, 3});
  EXPECT_EQ(Run({x_, x_}, {x_}, "lion"),
            "bk_noisy_update: optimizer: expected sgd, momentum, nesterov, "
            "adam or adamw, got 'lion'");
  EXPECT_EQ(Run({x_, x_}, {x_}, "sgd", {-1}),
            "bk_noisy_update: streams: expected 0 <= value < 2^32, got -1");
  EXPECT_EQ(Run({x_, x_}, {x_, x_}),
            "bk_noisy_update: number of arrays: expected 3, got 2");
  EXPECT_EQ(Run({x_, x_, x_}, {x_}),
            "bk_noisy_update: number of results: expected 2, got 1");
  EXPECT_EQ(Run({wide, x_, x_}, {x_, x_}),
            "bk_noisy_update: sum: expected f32[2,3], got f64[2,3]");
  EXPECT_EQ(Run({x_, y_, x_}, {x_, x_}),
            "bk_noisy_update: parameter: expected f32[2,3], got f32[]");
  EXPECT_EQ(Run({x_, x_, y_}, {x_, x_}),
            "bk_noisy_update: first moment: expected f32[2,3], got f32[]");
  EXPECT_EQ(Run({x_, x_, x_, x_}, {x_, x_, wide}, "adam"),
            "bk_noisy_update: second moment: expected f32[2,3], got f64[2,3]");
  EXPECT_EQ(RunCpu("bk_noisy_update", {key_, key_}, {}).message(),
            "bk_noisy_update: optimizer: expected sgd, momentum, nesterov, "
            "adam or adamw, got none");
  EXPECT_EQ(
      RunCpu("bk_noisy_update", {key_, numbers_}, {}, {{"optimizer", "sgd"}})
          .message(),
      "bk_noisy_update: streams: expected an attribute of int64 numbers, "
      "got none");
  EXPECT_EQ(RunCpu("bk_noisy_update", {key_, x_}, {},
                   {{"optimizer", "sgd"}, {"streams", std::vector<int64_t>{}}})
                .message(),
            "bk_noisy_update: numbers: expected f32[12], got f32[2,3]");
}

TEST(ChachaBitsHandlerTest, ChecksKeyAndWords) {
  const auto error = [](const TestBuffer& key, const TestBuffer& words) {
    return std::string(
        RunCpu("bk_chacha_bits", {key}, {words}, {{"stream", 0}, {"domain", 0}})
            .message());
  };
  EXPECT_EQ(error({ffi::U32, {8}}, {ffi::U32, {0}}), "");
  TestBuffer words(ffi::U32, {17});
  EXPECT_EQ(error({ffi::U32, {8}}, words), "");
  EXPECT_EQ(words.data<uint32_t>()[0], 0xade0b876);  // RFC 8439, A.1
  EXPECT_EQ(error({ffi::U32, {4}}, words),
            "bk_chacha_bits: key: expected u32[8], got u32[4]");
  EXPECT_EQ(error({ffi::U32, {8}}, {ffi::U64, {3}}),
            "bk_chacha_bits: words: expected u32[3], got u64[3]");
}

}  // namespace
}  // namespace bk
