// Handlers for GPUs with emulated kernels behind them: the same buffers give
// the same numbers as the handlers for CPUs, and wrong ones a good message.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "custom_calls/noise.h"
#include "gtest/gtest.h"
#include "tests/xla_plugin/buffers.h"
#include "tests/xla_plugin/run_cpu.h"
#include "tests/xla_plugin/run_cuda.h"
#include "xla_plugin/cuda_device.h"
#include "xla_plugin/cuda_target.h"
#include "xla_plugin/status.h"

namespace bk {
namespace {

constexpr ffi::DataType kF32 = ffi::F32;

class CudaHandlersTest : public testing::Test {
 protected:
  CudaHandlersTest() {
    a_.Fill(1);
    g_.Fill(2);
    factor_.Fill(3);
  }

  Device a_{kF32, {6, 4}, "a"}, g_{kF32, {6, 5}, "g"};
  Device factor_{kF32, {2}, "factor"};
  Device norm_{kF32, {2}}, upper_{kF32, {2}}, cpu_norm_{kF32, {2}},
      cpu_upper_{kF32, {2}};
};

TEST_F(CudaHandlersTest, Norms) {
  ASSERT_EQ(RunCpu("bk_ghost_norm", {a_, g_}, {cpu_norm_, cpu_upper_}),
            OkStatus());
  ASSERT_EQ(RunCuda("bk_ghost_norm", {a_, g_}, {norm_, upper_}), OkStatus());
  EXPECT_EQ(norm_.values(), cpu_norm_.values());

  ASSERT_EQ(RunCuda("bk_direct_norm", {a_, g_}, {norm_, upper_}), OkStatus());
  EXPECT_EQ(norm_.values(), cpu_norm_.values());

  Device grad(kF32, {2, 1, 4, 5}), cpu_grad(kF32, {2, 1, 4, 5});
  ASSERT_EQ(
      RunCpu("bk_per_sample_grad", {a_, g_}, {cpu_grad, cpu_norm_, cpu_upper_}),
      OkStatus());
  ASSERT_EQ(RunCuda("bk_per_sample_grad", {a_, g_}, {grad, norm_, upper_}),
            OkStatus());
  EXPECT_EQ(norm_.values(), cpu_norm_.values());
  EXPECT_EQ(grad.values(), cpu_grad.values());
}

TEST_F(CudaHandlersTest, Sums) {
  Device sum(kF32, {4, 5}), cpu_sum(kF32, {4, 5});
  ASSERT_EQ(RunCpu("bk_clipped_gemm", {a_, factor_, g_}, {cpu_sum}),
            OkStatus());
  ASSERT_EQ(RunCuda("bk_clipped_gemm", {a_, factor_, g_}, {sum}), OkStatus());
  EXPECT_EQ(sum.values(), cpu_sum.values());
  ASSERT_EQ(RunCuda("bk_clipped_gemm_add", {a_, factor_, g_, sum}, {sum}),
            OkStatus());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(sum.values()[i], 2 * cpu_sum.values()[i]);
  }
  Device x(kF32, {2, 7}), out(kF32, {7}), cpu_out(kF32, {7});
  x.Fill(4);
  ASSERT_EQ(RunCpu("bk_weighted_sum", {factor_, x}, {cpu_out}), OkStatus());
  ASSERT_EQ(RunCuda("bk_weighted_sum", {factor_, x}, {out}), OkStatus());
  EXPECT_EQ(out.values(), cpu_out.values());
}

TEST_F(CudaHandlersTest, ClipFactors) {
  Device squares(kF32, {2, 2}), clip_norm(kF32, {}), padding(ffi::PRED, {2});
  for (int i = 0; i < 4; ++i) squares.data<float>()[i] = 9.0f + 7.0f * (i / 2);
  clip_norm.data<float>()[0] = 2.5f;
  padding.data<bool>()[0] = false;
  padding.data<bool>()[1] = true;
  ASSERT_EQ(RunCuda("bk_clip_factor", {squares, clip_norm, padding},
                    {norm_, upper_}, {{"clipping", "abadi"}}),
            OkStatus());
  EXPECT_EQ(norm_.values(), std::vector<float>({0.5, 0}));
  EXPECT_EQ(upper_.values(), std::vector<float>({5, 5}));
}

TEST_F(CudaHandlersTest, ErrorsNameOperationAndOperand) {
  Device small(ffi::U8, {3}, "workspace"), wrong(kF32, {6}, "wrong");
  const MapAttributes none({});
  const auto status =
      CudaTargets()
          .at("bk_ghost_norm")
          .run({{a_, g_}, {norm_, upper_, small}, none}, nullptr);
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("bk_ghost_norm: workspace: expected u8[n] "));
  EXPECT_THAT(std::string(RunCuda("bk_clip_factor", {a_, wrong, wrong},
                                  {norm_, upper_}, {{"clipping", "flat"}})
                              .message()),
              testing::HasSubstr("clipping: expected abadi"));
  EXPECT_THAT(
      std::string(
          RunCuda("bk_clipped_gemm", {a_, wrong, g_}, {norm_}).message()),
      testing::HasSubstr("bk_clipped_gemm: "));
}

TEST_F(CudaHandlersTest, ErrorsOfLaunchesNameOperationFileAndLine) {
  TestBuffer nowhere(kF32, {6, 4});  // of which the emulated device has no part
  const auto status = RunCuda("bk_ghost_norm", {nowhere, g_}, {norm_, upper_});
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              testing::ContainsRegex("bk_ghost_norm: CUDA error 719 .*at "
                                     ".*ops/ghost_norm.cc:[0-9]+"));
}

// Without the initialize stage a first launch is recorded.
TEST_F(CudaHandlersTest, RecordingNeedsLoadedKernels) {
  const MapAttributes none({});
  Device x(kF32, {2, 7}), out(kF32, {7});
  emulator::UnloadAll();
  emulator::SetRecording(true);
  const auto status = CudaTargets()
                          .at("bk_weighted_sum")
                          .run({{factor_, x}, {out}, none}, nullptr);
  emulator::SetRecording(false);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
}

TEST_F(CudaHandlersTest, EmptyBatchesLaunchSomething) {
  Device none(kF32, {0}), a(kF32, {0, 1, 3, 4}), g(kF32, {0, 1, 3, 5});
  Device norm(kF32, {0}), upper(kF32, {0}), sum(kF32, {4, 5});
  ASSERT_EQ(RunCuda("bk_ghost_norm", {a, g}, {norm, upper}), OkStatus());
  ASSERT_EQ(RunCuda("bk_clipped_gemm", {a, none, g}, {sum}), OkStatus());
  EXPECT_EQ(sum.values(), std::vector<float>(20, 0));
  Device nothing(kF32, {2, 0}), no_sum(kF32, {0});
  ASSERT_EQ(RunCuda("bk_weighted_sum", {factor_, nothing}, {no_sum}),
            OkStatus());
  Device key(ffi::U32, {8}), words(ffi::U32, {0});
  ASSERT_EQ(RunCuda("bk_chacha_bits", {key}, {words},
                    {{"stream", 2}, {"domain", kNoiseDomain}}),
            OkStatus());
}

TEST(CudaDeviceTest, SaysWhatIsMissing) {
  const CudaDevice a100 = {"NVIDIA A100", 8, 0}, t4 = {"Tesla T4", 7, 5};
  EXPECT_EQ(ProblemOf({13000, 13000}, {a100}), "");
  EXPECT_EQ(ProblemOf({13010, 13000}, {{"B200", 10, 0}, {"new", 15, 0}}), "");
  EXPECT_EQ(ProblemOf({0, 13000}, {}), "no CUDA driver");
  EXPECT_EQ(ProblemOf({13000, 13000}, {}), "no CUDA device");
  EXPECT_EQ(ProblemOf({12080, 13000}, {a100}),
            "the driver is for CUDA 12.8, and this build needs one for CUDA "
            "13.0 or newer: update it");
  EXPECT_EQ(ProblemOf({13000, 13000}, {a100, t4}),
            "device 1, Tesla T4, has compute capability 7.5, and the kernels "
            "need 8.0 or newer: hide it with CUDA_VISIBLE_DEVICES");
}

// What a handler says of itself when XLA asks for it.
XLA_FFI_Handler_Traits TraitsOf(XLA_FFI_Handler* handler) {
  XLA_FFI_Metadata metadata = {};
  metadata.struct_size = XLA_FFI_Metadata_STRUCT_SIZE;
  metadata.api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
  XLA_FFI_Metadata_Extension extension = {};
  extension.extension_base.struct_size = XLA_FFI_Metadata_Extension_STRUCT_SIZE;
  extension.extension_base.type = XLA_FFI_Extension_Metadata;
  extension.metadata = &metadata;
  XLA_FFI_CallFrame frame = {};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.extension_start = &extension.extension_base;
  EXPECT_EQ(handler(&frame), nullptr);
  return metadata.traits;
}

TEST(CudaHandlerTraitsTest, EveryHandlerMayBeRecordedIntoACommandBuffer) {
  // XLA's own code stands for bk_squared_norms, bk_noisy_update and bk_after on
  // a GPU. The CPU's calls of one layer stand for those of several.
  const std::set<std::string_view> on_gpus_alone = {"bk_clipped_gemms",
                                                    "bk_ghost_norms"};
  EXPECT_EQ(CudaTargets().size() + 3,
            CpuTargets().size() + on_gpus_alone.size());
  for (const auto& [name, target] : CudaTargets()) {
    EXPECT_EQ(CpuTargets().count(name) + on_gpus_alone.count(name), 1) << name;
    EXPECT_EQ(TraitsOf(target.handler),
              XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE)
        << name;
  }
}

// ids [2, 3] with one token that is not read, g [2, 3, 5] and a table [4, 5].
class CudaLookupTest : public CudaHandlersTest {
 protected:
  CudaLookupTest() {
    grads_.Fill(5);
    const int32_t ids[] = {3, -1, 3, 0, 2, 0};
    std::copy(std::begin(ids), std::end(ids), ids_.data<int32_t>());
  }
  Device ids_{ffi::S32, {2, 3}, "ids"}, grads_{kF32, {2, 3, 5}, "g"};
};

TEST_F(CudaLookupTest, Norms) {
  ASSERT_EQ(
      RunCpu("bk_embedding_norm", {ids_, grads_}, {cpu_norm_, cpu_upper_}),
      OkStatus());
  ASSERT_EQ(RunCuda("bk_embedding_norm", {ids_, grads_}, {norm_, upper_}),
            OkStatus());
  EXPECT_EQ(norm_.values(), cpu_norm_.values());
}

TEST_F(CudaLookupTest, Sums) {
  Device sum(kF32, {4, 5}), cpu_sum(kF32, {4, 5});
  ASSERT_EQ(RunCpu("bk_clipped_scatter",
                   {ids_, factor_, grads_, cpu_sum.Fill(6)}, {cpu_sum}),
            OkStatus());
  ASSERT_EQ(RunCuda("bk_clipped_scatter", {ids_, factor_, grads_, sum.Fill(6)},
                    {sum}),
            OkStatus());
  EXPECT_EQ(sum.values(), cpu_sum.values());
}

TEST_F(CudaLookupTest, TiedCrossTerms) {
  ASSERT_EQ(
      RunCpu("bk_tied_cross", {a_, g_, ids_, grads_}, {cpu_norm_, cpu_upper_}),
      OkStatus());
  ASSERT_EQ(RunCuda("bk_tied_cross", {a_, g_, ids_, grads_}, {norm_, upper_}),
            OkStatus());
  EXPECT_EQ(norm_.values(), cpu_norm_.values());
}

TEST_F(CudaHandlersTest, Noise) {
  Device key(ffi::U32, {8}), stddev(kF32, {}), start(ffi::S32, {2});
  Device out(kF32, {6, 4}), cpu_out(kF32, {6, 4});
  stddev.data<float>()[0] = 3;
  start.data<int32_t>()[1] = 7;
  ASSERT_EQ(RunCpu("bk_gaussian", {a_, key, stddev, start}, {cpu_out},
                   {{"stream", 2}, {"whole", Dims{6, 11}}}),
            OkStatus());
  ASSERT_EQ(RunCuda("bk_gaussian", {a_, key, stddev, start}, {out},
                    {{"stream", 2}, {"whole", Dims{6, 11}}}),
            OkStatus());
  EXPECT_EQ(out.values(), cpu_out.values());
  const auto status = RunCuda("bk_gaussian", {a_, key, stddev, start}, {out},
                              {{"stream", 2}, {"whole", Dims{6, 3}}});
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("bk_gaussian: start: expected a block"));

  Device words(ffi::U32, {9}), cpu_words(ffi::U32, {9});
  ASSERT_EQ(RunCpu("bk_chacha_bits", {key}, {cpu_words},
                   {{"stream", 2}, {"domain", kNoiseDomain}}),
            OkStatus());
  ASSERT_EQ(RunCuda("bk_chacha_bits", {key}, {words},
                    {{"stream", 2}, {"domain", kNoiseDomain}}),
            OkStatus());
  EXPECT_TRUE(std::equal(words.data<uint32_t>(), words.data<uint32_t>() + 9,
                         cpu_words.data<uint32_t>()));
}

TEST_F(CudaHandlersTest, NoiseOfManyArrays) {
  Device key(ffi::U32, {8}), stddev(kF32, {}), y(kF32, {}), none(kF32, {0, 3});
  Device out(kF32, {6, 4}), cpu_out(kF32, {6, 4}), y_out(kF32, {});
  Device cpu_y_out(kF32, {});
  stddev.data<float>()[0] = 3;
  const MapAttributes::Map streams = {{"streams", Dims{5, 0, 7}}};
  ASSERT_EQ(RunCpu("bk_gaussians", {key, stddev, a_, none, y},
                   {cpu_out, none, cpu_y_out}, streams),
            OkStatus());
  const int64_t before = emulator::Launches();
  ASSERT_EQ(RunCuda("bk_gaussians", {key, stddev, a_, none, y},
                    {out, none, y_out}, streams),
            OkStatus());
  EXPECT_EQ(emulator::Launches() - before, 1);
  EXPECT_EQ(out.values(), cpu_out.values());
  EXPECT_EQ(y_out.values(), cpu_y_out.values());
  EXPECT_NE(y_out.values(), y.values());
  const auto status = RunCuda("bk_gaussians", {key, stddev, a_}, {out},
                              {{"streams", Dims{5, 0}}});
  EXPECT_EQ(std::string(status.message()),
            "bk_gaussians: streams: expected one for each array and result, "
            "got 2 for 1 and 1");
}

TEST_F(CudaHandlersTest, BandedNoise) {
  Device keys(ffi::U32, {3, 8}), stddevs(kF32, {3}), start(ffi::S32, {2});
  Device out(kF32, {6, 4}), cpu_out(kF32, {6, 4});
  for (int k = 0; k < 3; ++k) {
    keys.data<uint32_t>()[8 * k] = static_cast<uint32_t>(k);
    stddevs.data<float>()[k] = 1.3F - static_cast<float>(k);
  }
  start.data<int32_t>()[1] = 7;
  const MapAttributes::Map where = {{"stream", 2}, {"whole", Dims{6, 11}}};
  ASSERT_EQ(RunCpu("bk_banded_gaussian", {a_, keys, stddevs, start}, {cpu_out},
                   where),
            OkStatus());
  ASSERT_EQ(
      RunCuda("bk_banded_gaussian", {a_, keys, stddevs, start}, {out}, where),
      OkStatus());
  EXPECT_EQ(out.values(), cpu_out.values());
  EXPECT_NE(out.values(), a_.values());
}

TEST_F(CudaHandlersTest, BandedNoiseNamesOperandExpectedAndGot) {
  Device keys(ffi::U32, {3, 8}), stddevs(kF32, {3}), start(ffi::S32, {2});
  Device two(kF32, {2}), half(ffi::BF16, {6, 4});
  const auto error = [&](const Device& x, const Device& scales, int64_t width) {
    return std::string(RunCuda("bk_banded_gaussian", {x, keys, scales, start},
                               {x}, {{"stream", 2}, {"whole", Dims{6, width}}})
                           .message());
  };
  EXPECT_THAT(error(a_, stddevs, 3),
              testing::HasSubstr("start: expected a block of size (6,4)"));
  EXPECT_THAT(error(a_, two, 11),
              testing::HasSubstr("key: expected u32[2,8], got u32[3,8]"));
  EXPECT_THAT(error(half, stddevs, 11),
              testing::HasSubstr("x: expected f32 or f64, got bf16"));
}

// Images [4, 5] of two channels, output gradients [3, 3] of four.
TEST_F(CudaHandlersTest, Convolutions) {
  // [2, 3] with every other column, in two groups.
  const MapAttributes::Map window = {
      {"kernel", Dims{1, 2, 3}},   {"stride", Dims{1, 1, 2}},
      {"low", Dims{0, 0, 1}},      {"input_dilation", Dims{1, 1, 1}},
      {"dilation", Dims{1, 1, 1}}, {"groups", 2},
      {"form", "direct"}};
  Device x(kF32, {2, 4, 5, 2}), y(kF32, {2, 3, 3, 4});
  x.Fill(7);
  y.Fill(8);
  Device grad(kF32, {2, 1, 2, 3, 1, 4}), cpu_grad(kF32, {2, 1, 2, 3, 1, 4});
  ASSERT_EQ(
      RunCpu("bk_conv_grad", {x, y}, {cpu_grad, cpu_norm_, cpu_upper_}, window),
      OkStatus());
  ASSERT_EQ(RunCuda("bk_conv_grad", {x, y}, {grad, norm_, upper_}, window),
            OkStatus());
  EXPECT_EQ(grad.values(), cpu_grad.values());
  EXPECT_EQ(norm_.values(), cpu_norm_.values());
  ASSERT_EQ(RunCuda("bk_conv_norm", {x, y}, {norm_, upper_}, window),
            OkStatus());
  EXPECT_EQ(norm_.values(), cpu_norm_.values());

  Device sum(kF32, {2, 3, 1, 4}), cpu_sum(kF32, {2, 3, 1, 4});
  ASSERT_EQ(RunCpu("bk_conv_sum", {x, factor_, y}, {cpu_sum}, window),
            OkStatus());
  ASSERT_EQ(RunCuda("bk_conv_sum", {x, factor_, y}, {sum}, window), OkStatus());
  EXPECT_EQ(sum.values(), cpu_sum.values());
}

}  // namespace
}  // namespace bk
