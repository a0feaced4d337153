#include "custom_calls/cpu/dispatch.h"

#include <string>
#include <vector>

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
