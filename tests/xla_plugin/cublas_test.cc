// Handlers whose products cublasLt makes, with the stand-in that computes on
// the CPU behind them: layouts, strides, alpha, beta, workspace, errors.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "custom_calls/cuda/cublas/library.h"
#include "custom_calls/cuda/cublas/product.h"
#include "gtest/gtest.h"
#include "tests/cublas_stand_in/stand_in.h"
#include "tests/xla_plugin/buffers.h"
#include "tests/xla_plugin/run_cpu.h"
#include "tests/xla_plugin/run_cuda.h"
#include "xla_plugin/cuda_target.h"
#include "xla_plugin/status.h"

namespace bk {
namespace {

using cuda::CublasSearch;
using cuda::FindCublas;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr ffi::DataType kF32 = ffi::F32;

std::string Folder() {
  return std::string(std::getenv("TEST_SRCDIR")) +
         "/bk_jax/tests/cublas_stand_in";
}

StandIn& State() {
  static const auto state = [] {
    void* library =
        dlopen((Folder() + "/libcublasLt.so.13").c_str(), RTLD_LAZY);
    EXPECT_NE(library, nullptr) << dlerror();
    return reinterpret_cast<StandIn* (*)()>(dlsym(library, "BkStandIn"));
  }();
  return *state();
}

class CublasTest : public testing::Test {
 protected:
  void SetUp() override {
    State() = StandIn();
    const auto found = FindCublas({/*by_name=*/false, {Folder()}});
    ASSERT_EQ(found.problem, "");
    cuda::UseCublas(found.functions);
  }
  void TearDown() override {
    cuda::UseCublas(nullptr);
    State() = StandIn();
  }
};

std::vector<float> Betas() {
  std::vector<float> betas;
  for (const StandInCall& call : State().calls) betas.push_back(call.beta);
  return betas;
}

TEST_F(CublasTest, IsFoundLoadedOrInAFolder) {
  EXPECT_EQ(FindCublas({false, {"/nowhere", Folder()}}).problem, "");
  // Loaded by the fixture: found by its name, whatever the machine has.
  const auto by_name = FindCublas({/*by_name=*/true});
  ASSERT_EQ(by_name.problem, "");
  State().version = CUBLAS_VERSION + 7;
  EXPECT_EQ(by_name.functions->cublasLtGetVersion(), CUBLAS_VERSION + 7);
}

TEST_F(CublasTest, SaysWhatIsMissing) {
  const auto nowhere = FindCublas({false, {"/nowhere", "/not/here"}});
  EXPECT_EQ(nowhere.functions, nullptr);
  EXPECT_EQ(nowhere.problem,
            "libcublasLt.so.13 was not found in /nowhere, /not/here: install "
            "nvidia-cublas");
  State().version = 120900;
  EXPECT_EQ(FindCublas({false, {Folder()}}).problem,
            "libcublasLt.so.13 says that it is version 120900, and this build "
            "needs 13xxxx");
}

// Gradients of 3 examples and 2 weights, [5, 33] and [5, 40]: one call, with
// every matrix after the other.
TEST_F(CublasTest, GradientsAreOneBatchOfProducts) {
  Device a(kF32, {3, 2, 5, 33}, "a"), g(kF32, {3, 2, 5, 40}, "g");
  Device grad(kF32, {3, 2, 33, 40}), cpu_grad(kF32, {3, 2, 33, 40});
  Device norm(kF32, {3}), upper(kF32, {3}), cpu_norm(kF32, {3});
  Device cpu_upper(kF32, {3});
  a.Fill(1);
  g.Fill(2);
  ASSERT_EQ(
      RunCpu("bk_per_sample_grad", {a, g}, {cpu_grad, cpu_norm, cpu_upper}),
      OkStatus());
  ASSERT_EQ(RunCuda("bk_per_sample_grad", {a, g}, {grad, norm, upper}),
            OkStatus());
  EXPECT_EQ(grad.values(), cpu_grad.values());
  EXPECT_EQ(norm.values(), cpu_norm.values());
  for (int i = 0; i < 3; ++i) {
    EXPECT_GE(upper.values()[i], norm.values()[i]);
    EXPECT_LE(upper.values()[i], 1.00001f * norm.values()[i]);
  }
  ASSERT_EQ(State().calls.size(), 1);
  const StandInCall& call = State().calls[0];
  EXPECT_EQ(call.rows, 40);
  EXPECT_EQ(call.columns, 33);
  EXPECT_EQ(call.depth, 5);
  EXPECT_EQ(call.batch, 6);
  EXPECT_THAT(call.strides, ElementsAre(5 * 40, 5 * 33, 33 * 40));
  EXPECT_EQ(call.compute_type, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(call.alpha, 1);
  EXPECT_EQ(call.beta, 0);
  EXPECT_EQ(call.workspace_bytes, cuda::kProductScratchBytes);
}

// Elements of 16 bits go to the library as they are.
TEST_F(CublasTest, GradientsOfSixteenBits) {
  for (ffi::DataType type : {ffi::BF16, ffi::F16}) {
    SCOPED_TRACE(TypeString(type));
    Device a(type, {2, 1, 3, 32}, "a"), g(type, {2, 1, 3, 32}, "g");
    Device grad(kF32, {2, 1, 32, 32}), cpu_grad(kF32, {2, 1, 32, 32});
    Device norm(kF32, {2}), upper(kF32, {2}), cpu_norm(kF32, {2});
    Device cpu_upper(kF32, {2});
    const uint16_t one = type == ffi::BF16 ? 0x3f80 : 0x3c00;  // 2: next power
    const uint16_t two = 0x4000;
    for (int k = 0; k < 192; ++k) {
      a.data<uint16_t>()[k] = k % 3 == 0 ? one : 0;
      g.data<uint16_t>()[k] = k % 5 == 0 ? two : 0;
    }
    State().calls.clear();
    ASSERT_EQ(
        RunCpu("bk_per_sample_grad", {a, g}, {cpu_grad, cpu_norm, cpu_upper}),
        OkStatus());
    ASSERT_EQ(RunCuda("bk_per_sample_grad", {a, g}, {grad, norm, upper}),
              OkStatus());
    EXPECT_EQ(grad.values(), cpu_grad.values());
    EXPECT_EQ(norm.values(), cpu_norm.values());
    EXPECT_EQ(State().calls.size(), 1);
  }
}

// B, N, T, m, n, and everything that a sum needs.
struct SumCase {
  int64_t batch, weights, positions, m, n;

  Dims Rows(int64_t width) const { return {batch, weights, positions, width}; }
  Dims Sum() const { return weights == 1 ? Dims{m, n} : Dims{weights, m, n}; }
};

class CublasSumTest : public CublasTest,
                      public testing::WithParamInterface<SumCase> {
 protected:
  CublasSumTest() {
    lhs_.Fill(1);
    rhs_.Fill(2);
    for (int64_t i = 0; i < shape_.batch; ++i) {
      factor_.data<float>()[i] = 0.5f * static_cast<float>(i);  // 0, 0.5, ..
    }
  }

  // The numbers of the handlers for CPUs, from `sum` as it is if it is added.
  void ExpectAsOnCpu(bool add) {
    sum_.Fill(3);
    cpu_sum_.Fill(3);
    const char* name = add ? "bk_clipped_gemm_add" : "bk_clipped_gemm";
    const auto operands = [&](Device& sum) {
      std::vector<Buffer> all = {lhs_, factor_, rhs_};
      if (add) all.emplace_back(sum);
      return all;
    };
    ASSERT_EQ(RunCpu(name, operands(cpu_sum_), {cpu_sum_}), OkStatus());
    ASSERT_EQ(RunCuda(name, operands(sum_), {sum_}), OkStatus());
    EXPECT_EQ(sum_.values(), cpu_sum_.values());
  }

  SumCase shape_ = GetParam();
  Device lhs_{kF32, shape_.Rows(shape_.m), "lhs"};
  Device rhs_{kF32, shape_.Rows(shape_.n), "rhs"};
  Device factor_{kF32, {shape_.batch}, "factor"};
  Device sum_{kF32, shape_.Sum(), "sum"}, cpu_sum_{kF32, shape_.Sum()};
};

// One weight: one product over the rows of all examples. Several: one of all
// weights for each example, added up.
TEST_P(CublasSumTest, IsTheSum) {
  for (bool add : {false, true}) {
    State().calls.clear();
    ExpectAsOnCpu(add);
    const bool one = shape_.weights == 1;
    std::vector<float> betas(one ? 1 : shape_.batch, 1);
    betas[0] = add ? 1 : 0;
    EXPECT_EQ(Betas(), betas);
    for (const StandInCall& call : State().calls) {
      EXPECT_EQ(call.rows, shape_.n);
      EXPECT_EQ(call.columns, shape_.m);
      EXPECT_EQ(call.batch, shape_.weights);
      EXPECT_EQ(call.depth, shape_.positions * (one ? shape_.batch : 1));
      EXPECT_EQ(call.alpha, 1);
      EXPECT_EQ(call.compute_type, CUBLAS_COMPUTE_32F);
    }
  }
}

// A library multiplies NaN by 0, and 0 is the factor of an example with NaN.
TEST_P(CublasSumTest, ExamplesWithFactorZeroDoNoHarm) {
  Device& larger = shape_.m <= shape_.n ? rhs_ : lhs_;
  Device& smaller = shape_.m <= shape_.n ? lhs_ : rhs_;
  for (float bad : {NAN, HUGE_VALF}) {
    larger.data<float>()[7] = bad;
    smaller.data<float>()[3] = bad;
    ExpectAsOnCpu(/*add=*/false);
    ExpectAsOnCpu(/*add=*/true);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CublasSumTest,
                         testing::Values(SumCase{4, 1, 6, 32, 48},
                                         SumCase{3, 1, 5, 41, 33},
                                         SumCase{3, 2, 4, 35, 32}));

class CublasCallTest : public CublasTest {
 protected:
  CublasCallTest() {
    a_.Fill(1);
    g_.Fill(2);
    factor_.Fill(3);
  }
  Status Sum(const MapAttributes::Map& map = {}) {
    return RunCuda("bk_clipped_gemm", {a_, factor_, g_}, {sum_}, map);
  }
  Device a_{kF32, {6, 32}, "a"}, g_{kF32, {6, 32}, "g"};
  Device factor_{kF32, {2}, "factor"}, sum_{kF32, {32, 32}, "sum"};
};

// The order of additions is fixed: no reduction as parts get ready, and the
// algorithm of the first call for all others.
TEST_F(CublasCallTest, TheAlgorithmIsChosenOnce) {
  ASSERT_EQ(Sum(), OkStatus());
  ASSERT_EQ(Sum(), OkStatus());
  EXPECT_EQ(State().calls.size(), 2);
  EXPECT_EQ(State().heuristics, 1);
  EXPECT_EQ(State().handles, 1);
  EXPECT_EQ(State().reduction_schemes & CUBLASLT_REDUCTION_SCHEME_INPLACE, 0);
  EXPECT_NE(State().reduction_schemes, 0);
}

TEST_F(CublasCallTest, Tf32IsAskedFor) {
  ASSERT_EQ(Sum({{"tf32", int64_t{1}}}), OkStatus());
  ASSERT_EQ(State().calls.size(), 1);
  EXPECT_EQ(State().calls[0].compute_type, CUBLAS_COMPUTE_32F_FAST_TF32);
}

TEST_F(CublasCallTest, WithoutAnAlgorithmOurKernelsDoIt) {
  ASSERT_EQ(Sum(), OkStatus());
  const std::vector<float> expected = sum_.values();
  State().no_algorithm = true;
  State().calls.clear();
  cuda::UseCublas(FindCublas({false, {Folder()}}).functions);
  ASSERT_EQ(Sum(), OkStatus());
  EXPECT_EQ(sum_.values(), expected);
  EXPECT_TRUE(State().calls.empty());
}

TEST_F(CublasCallTest, AnAlgorithmMayNotNeedMoreThanThereIs) {
  State().needed_bytes = cuda::kProductScratchBytes + 1;
  ASSERT_EQ(Sum(), OkStatus());
  EXPECT_TRUE(State().calls.empty());
}

// Layers of float32: one product after the other.
TEST_F(CublasCallTest, EveryLayerIsAProduct) {
  Device b(kF32, {6, 32}, "b"), sums[] = {{kF32, {32, 32}}, {kF32, {32, 32}}};
  ASSERT_EQ(RunCuda("bk_clipped_gemms", {factor_, a_, g_, b.Fill(4), g_},
                    {sums[0], sums[1]}),
            OkStatus());
  EXPECT_EQ(State().calls.size(), 2);
  ASSERT_EQ(Sum(), OkStatus());
  EXPECT_EQ(sums[0].values(), sum_.values());
  ASSERT_EQ(RunCuda("bk_clipped_gemm", {b, factor_, g_}, {sum_}), OkStatus());
  EXPECT_EQ(sums[1].values(), sum_.values());
}

TEST_F(CublasCallTest, ErrorsNameTheOperation) {
  State().failure = CUBLAS_STATUS_EXECUTION_FAILED;
  const auto status = Sum();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              ContainsRegex("bk_clipped_gemm: cuBLAS error 13 .execution "
                            "failed. at .*ops/clipped_gemm.cc:[0-9]+"));
}

TEST_F(CublasCallTest, SmallProductsAreOurs) {
  Device a(kF32, {6, 31}), sum(kF32, {31, 32});
  ASSERT_EQ(RunCuda("bk_clipped_gemm", {a.Fill(1), factor_, g_}, {sum}),
            OkStatus());
  EXPECT_TRUE(State().calls.empty());
}

}  // namespace
}  // namespace bk
