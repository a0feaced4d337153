#include "tests/cuda_on_cpu/instructions.h"

#include <algorithm>
#include <cstring>

#include "tests/cuda_on_cpu/cuda_on_cpu.h"

namespace bk::emulator {
namespace {

// Register `number` of every lane.
void Exchange(uint32_t value, uint32_t (&all)[kWarpSize]) {
  const uint64_t* values = ExchangeInWarp(~0u, value, BK_SITE);
  for (int lane = 0; lane < kWarpSize; ++lane) {
    all[lane] = static_cast<uint32_t>(values[lane]);
  }
}

char* SharedPointer(uint32_t address) {
  return static_cast<char*>(SharedBase()) + address;
}

double BFloat16At(uint32_t word, int half) {
  return ToFloat(__nv_bfloat16{static_cast<uint16_t>(word >> 16 * half)});
}
double Float16At(uint32_t word, int half) {
  return ToFloat(__half{static_cast<uint16_t>(word >> 16 * half)});
}
double Tf32At(uint32_t word, int /*half*/) {
  return __uint_as_float(word & ~uint32_t{0x1fff});
}

// kPer elements to a register; 8 * kPer of them along the sum.
template <int kPer, double (*kAt)(uint32_t, int)>
void Multiply(const uint32_t (&left)[4], const uint32_t (&right)[2],
              float (&sums)[4]) {
  constexpr int kTerms = 8 * kPer;
  uint32_t a[4][kWarpSize], b[2][kWarpSize];
  for (int i = 0; i < 4; ++i) Exchange(left[i], a[i]);
  for (int i = 0; i < 2; ++i) Exchange(right[i], b[i]);
  for (int entry = 0; entry < 4; ++entry) {
    const int row = Lane() / 4, column = Lane() % 4 * 2 + entry % 2;
    double x[kTerms], y[kTerms];
    for (int k = 0; k < kTerms; ++k) {
      const int word = k / kPer;
      x[k] = kAt(a[word / 4 * 2 + entry / 2][row * 4 + word % 4], k % kPer);
      y[k] = kAt(b[word / 4][column * 4 + word % 4], k % kPer);
    }
    for (int k = 0; k < kTerms; k += kStepTerms) {
      sums[entry] = TensorStep(sums[entry], x + k, y + k);
    }
  }
}

}  // namespace

uint32_t SharedAddressOf(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const char*>(pointer) -
                               static_cast<const char*>(SharedBase()));
}

void MultiplyBFloat16(const uint32_t (&left)[4], const uint32_t (&right)[2],
                      float (&sums)[4]) {
  Multiply<2, BFloat16At>(left, right, sums);
}
void MultiplyFloat16(const uint32_t (&left)[4], const uint32_t (&right)[2],
                     float (&sums)[4]) {
  Multiply<2, Float16At>(left, right, sums);
}
void MultiplyTf32(const uint32_t (&left)[4], const uint32_t (&right)[2],
                  float (&sums)[4]) {
  Multiply<1, Tf32At>(left, right, sums);
}

void LoadMatrices(uint32_t row, bool transposed, uint32_t (&to)[4]) {
  uint32_t rows[kWarpSize];
  Exchange(row, rows);
  CheckAligned(SharedPointer(row), 16, "a row of ldmatrix");
  const int r = Lane() / 4, c = Lane() % 4;
  for (int m = 0; m < 4; ++m) {
    if (!transposed) {
      const char* from = SharedPointer(rows[m * 8 + r]) + 4 * c;
      CheckAccess(from, 4, Access::kRead);
      std::memcpy(&to[m], from, 4);
      continue;
    }
    uint16_t halves[2];
    for (int h = 0; h < 2; ++h) {
      const char* from = SharedPointer(rows[m * 8 + 2 * c + h]) + 2 * r;
      CheckAccess(from, 2, Access::kRead);
      std::memcpy(&halves[h], from, 2);
    }
    std::memcpy(&to[m], halves, 4);
  }
}

void CopyAsync(uint32_t to, const void* from, int size, int bytes) {
  char* target = SharedPointer(to);
  CheckAligned(target, size, "the target of cp.async");
  CheckAligned(from, size, "the source of cp.async");
  CheckAccess(target, size, Access::kWrite);
  if (bytes > 0) CheckAccess(from, bytes, Access::kRead);
  std::memcpy(target, from, bytes);
  std::memset(target + bytes, 0, size - bytes);
}
void CommitCopies() {}
void WaitForCopies(int /*pending*/) {}

uint32_t RoundToTf32(float x) {
  return __float_as_uint(nvcuda::wmma::__float_to_tf32(x));
}

}  // namespace bk::emulator
