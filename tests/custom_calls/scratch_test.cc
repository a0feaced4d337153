// What kernels allocate: scratch of a fixed size per thread and a few numbers
// per tile, however large the layer.
#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "custom_calls/cpu/clipped_gemm.h"
#include "custom_calls/cpu/direct_norm.h"
#include "custom_calls/cpu/ghost_norm.h"
#include "custom_calls/cpu/per_sample_grad.h"
#include "custom_calls/cpu/weighted_sum.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/test_data.h"

namespace {

std::atomic<int64_t> allocated{0};

void* Count(std::size_t bytes, std::size_t alignment) {
  allocated += static_cast<int64_t>(bytes);
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* data = std::aligned_alloc(alignment, rounded);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

void* operator new(std::size_t bytes) { return Count(bytes, 16); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return Count(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept {
  std::free(data);
}

namespace bk {
namespace {

// Bytes that `call` allocates on a thread that has no scratch yet.
template <class Call>
int64_t AllocatedBy(Call&& call) {
  int64_t bytes = 0;
  std::thread([&] {
    const int64_t before = allocated;
    call();
    bytes = allocated - before;
  }).join();
  return bytes;
}

class ScratchTest : public IsaTest {};
BK_INSTANTIATE_FOR_EACH_ISA(ScratchTest);

// One megabyte: less than one gradient (4 MB), one Gram matrix of the larger
// case (1.2 MB in double) or the operands (3 MB).
TEST_P(ScratchTest, IsOneMegabytePerThreadHoweverLargeTheLayer) {
  constexpr int64_t kLimit = 1 << 20;
  for (int64_t positions : {20, 390}) {
    const GhostNormShape shape = {1, 1, positions, 1000, 1000};
    const ClippedGemmShape gemm = {1, 1, positions, 1000, 1000};
    const Array<float> a = Normals<float>(random_, positions * 1000);
    Array<float> sum(int64_t{1000} * 1000);
    float factor = 1, norm = 0, upper = 0;
    EXPECT_LT(AllocatedBy([&] {
                GhostNorm(kernels(), serial_, shape, a.data(), a.data(), &norm,
                          &upper);
              }),
              kLimit);
    EXPECT_LT(AllocatedBy([&] {
                DirectNorm(kernels(), serial_, shape, a.data(), a.data(), &norm,
                           &upper);
              }),
              kLimit);
    EXPECT_LT(AllocatedBy([&] {
                PerSampleGrad(kernels(), serial_, shape, a.data(), a.data(),
                              sum.data(), &norm, &upper);
              }),
              kLimit);
    EXPECT_LT(AllocatedBy([&] {
                ClippedGemm(kernels(), serial_, gemm, a.data(), &factor,
                            a.data(), sum.data());
              }),
              kLimit);
    EXPECT_LT(AllocatedBy([&] {
                WeightedSum(kernels(), serial_, {1, positions * 1000}, &factor,
                            a.data(), sum.data());
              }),
              kLimit / 1000);
  }
}

}  // namespace
}  // namespace bk
