#include "custom_calls/cpu/isa/dispatch.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "custom_calls/cpu/amx/amx_support.h"
#include "gtest/gtest.h"

namespace bk {
namespace {

constexpr CpuKernels kOld = {"old", 16, {}, {}, {}, {}};
constexpr CpuKernels kNew = {"new", 32, {}, {}, {}, {}};
const std::vector<const CpuKernels*> kBoth = {&kOld, &kNew};

TEST(DispatchTest, BestWithoutARequest) {
  for (const char* request : {static_cast<const char*>(nullptr), ""}) {
    const KernelChoice choice = ChooseKernels(request, kBoth);
    EXPECT_EQ(choice.kernels, &kNew);
    EXPECT_EQ(choice.note, "");
  }
}

TEST(DispatchTest, FollowsARequest) {
  const KernelChoice choice = ChooseKernels("old", kBoth);
  EXPECT_EQ(choice.kernels, &kOld);
  EXPECT_EQ(choice.note, "");
}

TEST(DispatchTest, ExplainsARequestItCanNotFollow) {
  const KernelChoice choice = ChooseKernels("newer", kBoth);
  EXPECT_EQ(choice.kernels, &kNew);
  EXPECT_EQ(choice.note,
            "BK_JAX_ISA=newer is not available here (old, new): using new");
}

TEST(DispatchTest, SaysWhyThereIsNoAmx) {
  EXPECT_EQ(ChooseKernels("amx", kBoth, "the CPU has no AMX-TILE").note,
            "BK_JAX_ISA=amx is not available here (old, new), as the CPU has "
            "no AMX-TILE: using new");
  EXPECT_EQ(ChooseKernels("newer", kBoth, "the CPU has no AMX-TILE").note,
            "BK_JAX_ISA=newer is not available here (old, new): using new");
}

TEST(DispatchTest, AmxNeedsCpuAndSystem) {
  AmxFacts facts;
  EXPECT_EQ(WhyNoAmx(facts), "the CPU has no AMX-TILE");
  facts.tile = true;
  EXPECT_EQ(WhyNoAmx(facts), "the CPU has no AMX-BF16");
  facts.bf16 = true;
  EXPECT_EQ(WhyNoAmx(facts), "the CPU's tiles are smaller than 16 x 64");
  facts.whole_tiles = true;
  EXPECT_EQ(WhyNoAmx(facts), "the operating system does not save tiles (XCR0)");
  facts.saved = true;
  EXPECT_EQ(WhyNoAmx(facts), "");
  facts.permission = ENOSPC;
  EXPECT_EQ(WhyNoAmx(facts),
            "arch_prctl(ARCH_REQ_XCOMP_PERM): No space left "
            "on device");
}

TEST(DispatchTest, AmxIsThereWhereItCanBeUsed) {
  const std::string best = SupportedKernels().back()->name;
  if (best == "amx") {
    EXPECT_TRUE(SupportedKernels().back()->bf16.tiles);
    EXPECT_EQ(SupportedKernels().back()->f32.ghost_tile_row,
              SupportedKernels().end()[-2]->f32.ghost_tile_row);
  } else {
    EXPECT_FALSE(best == "avx512" && WhyNoAmx(FindAmxFacts()).empty());
  }
}

// VDPBF16PS is the better choice on AMD's CPUs alone; everywhere it can be
// asked for by name.
TEST(DispatchTest, PairsComeBesideAvx512) {
  std::vector<std::string> names;
  for (const CpuKernels* table : SupportedKernels()) {
    names.emplace_back(table->name);
  }
  const auto pairs = std::find(names.begin(), names.end(), "avx512bf16");
  const auto plain = std::find(names.begin(), names.end(), "avx512");
#if defined(__x86_64__)
  __builtin_cpu_init();
  EXPECT_LE(__builtin_cpu_supports("avx512bf16") != 0, pairs != names.end());
  if (pairs == names.end()) return;
  ASSERT_NE(plain, names.end());
  EXPECT_EQ(pairs > plain, __builtin_cpu_is("amd") != 0);
#else
  EXPECT_EQ(pairs, plain);
#endif
}

TEST(DispatchTest, BaselineIsAlwaysThereAndTablesAreComplete) {
  ASSERT_FALSE(SupportedKernels().empty());
  EXPECT_EQ(SupportedKernels().front()->name, std::string("baseline"));
  for (const CpuKernels* kernels : SupportedKernels()) {
    EXPECT_NE(kernels->f32.ghost_tile_row, nullptr);
    EXPECT_NE(kernels->f64.clipped_gemm_tile, nullptr);
  }
}

}  // namespace
}  // namespace bk
