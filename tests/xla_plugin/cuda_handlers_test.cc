// Handlers for GPUs with emulated kernels behind them: the same buffers give
// the same numbers as the handlers for CPUs, and wrong ones a good message.
#include "xla_plugin/cuda_handlers.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "custom_calls/parallel.h"
#include "gtest/gtest.h"
#include "tests/xla_plugin/buffers.h"
#include "xla_plugin/cuda_workspace.h"
#include "xla_plugin/handlers.h"

// The kernels that are linked here run on the CPU and look at every access;
// this file is compiled with CUDA's own headers, as the handlers are.
namespace bk::emulator {
void Register(const void* begin, size_t bytes, const std::string& name);
void Forget(const void* begin);
}  // namespace bk::emulator

namespace bk {
namespace {

namespace ffi = xla::ffi;
using Dims = std::vector<int64_t>;

// A buffer that emulated kernels may touch.
class Device : public TestBuffer {
 public:
  Device(ffi::DataType type, const Dims& dims, const std::string& name = "x")
      : TestBuffer(type, dims) {
    size_ = 1;
    for (int64_t dim : dims) size_ *= dim;
    emulator::Register(data<char>(), size_ * ffi::ByteWidth(type), name);
  }
  ~Device() { emulator::Forget(data<char>()); }
  // Small integers, the same ones for the same seed.
  Device& Fill(int seed) {
    std::mt19937 random(seed);
    for (int64_t i = 0; i < size_; ++i) {
      data<float>()[i] = static_cast<float>(random() % 5) - 2;
    }
    return *this;
  }
  std::vector<float> values() {
    return std::vector<float>(data<float>(), data<float>() + size_);
  }

 private:
  int64_t size_;
};

constexpr ffi::DataType kF32 = ffi::F32;

class CudaHandlersTest : public testing::Test {
 protected:
  CudaHandlersTest() {
    a_.Fill(1);
    g_.Fill(2);
    factor_.Fill(3);
  }
  // For operands [2, 1, 3, 4] and [2, 1, 3, 5].
  static int64_t Workspace(const std::string& target, bool with_factor) {
    std::vector<Dims> operands = {{2, 1, 3, 4}, {2, 1, 3, 5}};
    if (with_factor) operands.insert(operands.begin() + 1, Dims{2});
    return WorkspaceBytes(target, {operands, 4, {}});
  }

  SerialParallel serial_;
  Device a_{kF32, {6, 4}, "a"}, g_{kF32, {6, 5}, "g"};
  Device factor_{kF32, {2}, "factor"};
  Device norm_{kF32, {2}}, upper_{kF32, {2}}, cpu_norm_{kF32, {2}},
      cpu_upper_{kF32, {2}};
};

TEST_F(CudaHandlersTest, Norms) {
  Device workspace(ffi::U8, {Workspace("bk_ghost_norm", false)}, "workspace");
  ASSERT_EQ(RunGhostNorm(serial_, a_, g_, cpu_norm_, cpu_upper_),
            absl::OkStatus());
  ASSERT_EQ(RunGhostNormCuda(nullptr, a_, g_, norm_, upper_, workspace),
            absl::OkStatus());
  EXPECT_EQ(norm_.values(), cpu_norm_.values());

  Device direct(ffi::U8, {Workspace("bk_direct_norm", false)}, "workspace");
  ASSERT_EQ(RunDirectNormCuda(nullptr, a_, g_, norm_, upper_, direct),
            absl::OkStatus());
  EXPECT_EQ(norm_.values(), cpu_norm_.values());

  Device stored(ffi::U8, {Workspace("bk_per_sample_grad", false)}, "workspace");
  Device grad(kF32, {2, 1, 4, 5}), cpu_grad(kF32, {2, 1, 4, 5});
  ASSERT_EQ(RunPerSampleGrad(serial_, a_, g_, cpu_grad, cpu_norm_, cpu_upper_),
            absl::OkStatus());
  ASSERT_EQ(RunPerSampleGradCuda(nullptr, a_, g_, grad, norm_, upper_, stored),
            absl::OkStatus());
  EXPECT_EQ(norm_.values(), cpu_norm_.values());
  EXPECT_EQ(grad.values(), cpu_grad.values());
}

TEST_F(CudaHandlersTest, Sums) {
  Device workspace(ffi::U8, {Workspace("bk_clipped_gemm", true)}, "workspace");
  Device sum(kF32, {4, 5}), cpu_sum(kF32, {4, 5});
  ASSERT_EQ(RunClippedGemm(serial_, a_, factor_, g_, cpu_sum),
            absl::OkStatus());
  ASSERT_EQ(RunClippedGemmCuda(nullptr, a_, factor_, g_, sum, workspace),
            absl::OkStatus());
  EXPECT_EQ(sum.values(), cpu_sum.values());
  ASSERT_EQ(
      RunClippedGemmAddCuda(nullptr, a_, factor_, g_, sum, sum, workspace),
      absl::OkStatus());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(sum.values()[i], 2 * cpu_sum.values()[i]);
  }
  Device x(kF32, {2, 7}), out(kF32, {7}), cpu_out(kF32, {7});
  x.Fill(4);
  ASSERT_EQ(RunWeightedSum(serial_, factor_, x, cpu_out), absl::OkStatus());
  ASSERT_EQ(RunWeightedSumCuda(nullptr, factor_, x, out), absl::OkStatus());
  EXPECT_EQ(out.values(), cpu_out.values());
}

TEST_F(CudaHandlersTest, ClipFactors) {
  Device squares(kF32, {2, 2}), clip_norm(kF32, {}), padding(ffi::PRED, {2});
  for (int i = 0; i < 4; ++i) squares.data<float>()[i] = 9.0f + 7.0f * (i / 2);
  clip_norm.data<float>()[0] = 2.5f;
  padding.data<bool>()[0] = false;
  padding.data<bool>()[1] = true;
  ASSERT_EQ(RunClipFactorCuda(nullptr, "abadi", squares, clip_norm, padding,
                              norm_, upper_),
            absl::OkStatus());
  EXPECT_EQ(norm_.values(), std::vector<float>({0.5, 0}));
  EXPECT_EQ(upper_.values(), std::vector<float>({5, 5}));
}

TEST_F(CudaHandlersTest, ErrorsNameOperationAndOperand) {
  Device small(ffi::U8, {3}, "workspace"), wrong(kF32, {6}, "wrong");
  const auto status = RunGhostNormCuda(nullptr, a_, g_, norm_, upper_, small);
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("bk_ghost_norm: workspace: expected u8[n] "));
  EXPECT_THAT(std::string(RunClipFactorCuda(nullptr, "flat", a_, wrong, wrong,
                                            norm_, upper_)
                              .message()),
              testing::HasSubstr("clipping: expected abadi"));
  EXPECT_THAT(
      std::string(
          RunClippedGemmCuda(nullptr, a_, wrong, g_, norm_, small).message()),
      testing::HasSubstr("bk_clipped_gemm: "));
}

TEST_F(CudaHandlersTest, ErrorsOfLaunchesNameOperationFileAndLine) {
  TestBuffer nowhere(kF32, {6, 4});  // of which the emulated device has no part
  Device workspace(ffi::U8, {Workspace("bk_ghost_norm", false)}, "workspace");
  const auto status =
      RunGhostNormCuda(nullptr, nowhere, g_, norm_, upper_, workspace);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              testing::ContainsRegex("bk_ghost_norm: CUDA error 719 .*at "
                                     ".*ghost_norm_cuda.cc:[0-9]+"));
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
  XLA_FFI_Handler* const handlers[] = {
      BkGhostNormCuda,   BkDirectNormCuda,    BkPerSampleGradCuda,
      BkClipFactorCuda,  BkClippedGemmCuda,   BkClippedGemmAddCuda,
      BkWeightedSumCuda, BkEmbeddingNormCuda, BkClippedScatterCuda,
      BkTiedCrossCuda,   BkConvNormCuda,      BkConvGradCuda,
      BkConvSumCuda,     BkGaussianCuda,      BkChachaBitsCuda};
  for (XLA_FFI_Handler* handler : handlers) {
    EXPECT_EQ(TraitsOf(handler),
              XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE);
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
  Device workspace(ffi::U8, {WorkspaceBytes("bk_embedding_norm",
                                            {{{2, 3}, {2, 3, 5}}, 4, {}})});
  ASSERT_EQ(RunEmbeddingNorm(serial_, ids_, grads_, cpu_norm_, cpu_upper_),
            absl::OkStatus());
  ASSERT_EQ(
      RunEmbeddingNormCuda(nullptr, ids_, grads_, norm_, upper_, workspace),
      absl::OkStatus());
  EXPECT_EQ(norm_.values(), cpu_norm_.values());
}

TEST_F(CudaLookupTest, Sums) {
  Device workspace(ffi::U8,
                   {WorkspaceBytes("bk_clipped_scatter",
                                   {{{2, 3}, {2}, {2, 3, 5}, {4, 5}}, 4, {}})});
  Device sum(kF32, {4, 5}), cpu_sum(kF32, {4, 5});
  ASSERT_EQ(RunClippedScatter(serial_, ids_, factor_, grads_, cpu_sum.Fill(6),
                              cpu_sum),
            absl::OkStatus());
  ASSERT_EQ(RunClippedScatterCuda(nullptr, ids_, factor_, grads_, sum.Fill(6),
                                  sum, workspace),
            absl::OkStatus());
  EXPECT_EQ(sum.values(), cpu_sum.values());
}

TEST_F(CudaLookupTest, TiedCrossTerms) {
  Device workspace(
      ffi::U8,
      {WorkspaceBytes("bk_tied_cross",
                      {{{2, 3, 4}, {2, 3, 5}, {2, 3}, {2, 3, 5}}, 4, {}})});
  ASSERT_EQ(RunTiedCross(serial_, a_, g_, ids_, grads_, cpu_norm_, cpu_upper_),
            absl::OkStatus());
  ASSERT_EQ(
      RunTiedCrossCuda(nullptr, a_, g_, ids_, grads_, norm_, upper_, workspace),
      absl::OkStatus());
  EXPECT_EQ(norm_.values(), cpu_norm_.values());
}

TEST_F(CudaHandlersTest, Noise) {
  Device key(ffi::U32, {8}), stddev(kF32, {}), start(ffi::S32, {2});
  Device out(kF32, {6, 4}), cpu_out(kF32, {6, 4});
  stddev.data<float>()[0] = 3;
  start.data<int32_t>()[1] = 7;
  NoiseStream stream = {};
  stream.stream = 2;
  stream.domain = kNoiseDomain;
  ASSERT_EQ(
      RunGaussian(serial_, stream, {6, 11}, a_, key, stddev, start, cpu_out),
      absl::OkStatus());
  ASSERT_EQ(RunGaussianCuda(nullptr, 2, {6, 11}, a_, key, stddev, start, out),
            absl::OkStatus());
  EXPECT_EQ(out.values(), cpu_out.values());
  const auto status =
      RunGaussianCuda(nullptr, 2, {6, 3}, a_, key, stddev, start, out);
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("bk_gaussian: start: expected a block"));

  Device words(ffi::U32, {9}), cpu_words(ffi::U32, {9});
  ASSERT_EQ(RunChachaBits(serial_, stream, key, cpu_words), absl::OkStatus());
  ASSERT_EQ(RunChachaBitsCuda(nullptr, 2, kNoiseDomain, key, words),
            absl::OkStatus());
  EXPECT_TRUE(std::equal(words.data<uint32_t>(), words.data<uint32_t>() + 9,
                         cpu_words.data<uint32_t>()));
}

// Attributes of a convolution [2, 3] with every other column, in two groups.
// XLA sorts them by name, and a dictionary counts on it.
class ConvAttributes {
 public:
  ConvAttributes() {
    AddList("dilation", dilation_);
    Add("form", XLA_FFI_AttrType_STRING, &form_);
    Add("groups", XLA_FFI_AttrType_SCALAR, &scalar_);
    AddList("input_dilation", input_dilation_);
    AddList("kernel", kernel_);
    AddList("low", low_);
    AddList("stride", stride_);
    attrs_ = {XLA_FFI_Attrs_STRUCT_SIZE, nullptr,       7, types_.data(),
              name_list_.data(),         values_.data()};
  }
  ffi::Dictionary dictionary() const { return ffi::Dictionary(&attrs_); }

 private:
  void AddList(const char* name, int64_t (&list)[3]) {
    arrays_.push_back({XLA_FFI_DataType_S64, 3, list});
    Add(name, XLA_FFI_AttrType_ARRAY, &arrays_.back());
  }
  void Add(const char* name, XLA_FFI_AttrType type, void* value) {
    names_.push_back({name, std::string_view(name).size()});
    types_.push_back(type);
    values_.push_back(value);
    name_list_.clear();
    for (XLA_FFI_ByteSpan& span : names_) name_list_.push_back(&span);
  }
  int64_t dilation_[3] = {1, 1, 1}, input_dilation_[3] = {1, 1, 1};
  int64_t kernel_[3] = {1, 2, 3}, low_[3] = {0, 0, 1}, stride_[3] = {1, 1, 2};
  int64_t groups_ = 2;
  std::deque<XLA_FFI_Array> arrays_;
  XLA_FFI_Scalar scalar_ = {XLA_FFI_DataType_S64, &groups_};
  XLA_FFI_ByteSpan form_ = {"direct", 6};
  std::deque<XLA_FFI_ByteSpan> names_;
  std::vector<XLA_FFI_AttrType> types_;
  std::vector<XLA_FFI_ByteSpan*> name_list_;
  std::vector<void*> values_;
  XLA_FFI_Attrs attrs_;
};

// Images [4, 5] of two channels, output gradients [3, 3] of four.
TEST_F(CudaHandlersTest, Convolutions) {
  const ConvAttributes attributes;
  const auto window = attributes.dictionary();
  Device x(kF32, {2, 4, 5, 2}), y(kF32, {2, 3, 3, 4});
  x.Fill(7);
  y.Fill(8);
  const Dims x_dims = {2, 1, 1, 4, 5, 2}, y_dims = {2, 1, 1, 3, 3, 4};
  const std::map<std::string, Dims> lists = {{"kernel", {1, 2, 3}},
                                             {"groups", {2}}};
  Device work(ffi::U8,
              {WorkspaceBytes("bk_conv_grad", {{x_dims, y_dims}, 4, lists})});
  Device grad(kF32, {2, 1, 2, 3, 1, 4}), cpu_grad(kF32, {2, 1, 2, 3, 1, 4});
  ASSERT_EQ(RunConvGrad(serial_, window, x, y, cpu_grad, cpu_norm_, cpu_upper_),
            absl::OkStatus());
  ASSERT_EQ(RunConvGradCuda(nullptr, window, x, y, grad, norm_, upper_, work),
            absl::OkStatus());
  EXPECT_EQ(grad.values(), cpu_grad.values());
  EXPECT_EQ(norm_.values(), cpu_norm_.values());
  ASSERT_EQ(RunConvNormCuda(nullptr, window, x, y, norm_, upper_, work),
            absl::OkStatus());
  EXPECT_EQ(norm_.values(), cpu_norm_.values());

  Device sum_work(ffi::U8, {WorkspaceBytes("bk_conv_sum",
                                           {{x_dims, {2}, y_dims}, 4, lists})});
  Device sum(kF32, {2, 3, 1, 4}), cpu_sum(kF32, {2, 3, 1, 4});
  ASSERT_EQ(RunConvSum(serial_, window, x, factor_, y, cpu_sum),
            absl::OkStatus());
  ASSERT_EQ(RunConvSumCuda(nullptr, window, x, factor_, y, sum, sum_work),
            absl::OkStatus());
  EXPECT_EQ(sum.values(), cpu_sum.values());
}

}  // namespace
}  // namespace bk
