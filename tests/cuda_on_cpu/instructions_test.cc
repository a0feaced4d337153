// The machine instructions of the emulation: layouts by the formulas of the PTX
// ISA, equality on small integers, and mistakes that have to be found.
#include "tests/cuda_on_cpu/instructions.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cuda_on_cpu/bank_conflicts.h"
#include "tests/cuda_on_cpu/broken_tiles.h"
#include "tests/cuda_on_cpu/tensor_core.h"

namespace bk::broken {
namespace {

using testing::HasSubstr;

// A buffer that the emulator knows, at a multiple of 16 bytes.
template <class T>
class Buffer {
 public:
  explicit Buffer(size_t size, const char* name = "buffer") : all_(size + 32) {
    const auto begin = reinterpret_cast<uintptr_t>(all_.data());
    data_ = all_.data() + (16 - begin % 16) % 16 / sizeof(T);
    emulator::Register(data_, size * sizeof(T), name);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { emulator::Forget(data_); }
  T* data() { return data_; }
  T& operator[](size_t i) { return data_[i]; }

 private:
  std::vector<T> all_;
  T* data_;
};

uint32_t BitsOf(Format format, float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  if (format == Format::kTf32) return bits;
  if (format == Format::kBFloat16) return bits >> 16;
  // Integers up to 2048 as float16: exponent and 10 bits of the mantissa.
  const uint32_t sign = bits >> 31 << 15;
  const uint32_t exponent = (bits >> 23 & 0xff) - 127 + 15;
  return x == 0 ? 0 : sign | exponent << 10 | (bits >> 13 & 0x3ff);
}

// Integers that tell apart rows and columns.
float LeftEntry(int row, int k) {
  return static_cast<float>((row * 7 + k * 3) % 11 - 5);
}
float RightEntry(int k, int column) {
  return static_cast<float>((column * 5 + k * 2) % 13 - 6);
}

// "Matrix fragments for mma.m16n8k16": element i of lane l.
int RowOfLeft(int lane, int i) {
  return i < 2 || (4 <= i && i < 6) ? lane >> 2 : (lane >> 2) + 8;
}
int ColumnOfLeft(int lane, int i) {
  return (lane & 3) * 2 + (i & 1) + (i < 4 ? 0 : 8);
}
int RowOfRight(int lane, int i) {
  return (lane & 3) * 2 + (i & 1) + (i < 2 ? 0 : 8);
}

void PackHalves(Format format, Buffer<uint32_t>& left,
                Buffer<uint32_t>& right) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 8; ++i) {
      const float x = LeftEntry(RowOfLeft(lane, i), ColumnOfLeft(lane, i));
      left[4 * lane + i / 2] |= BitsOf(format, x) << 16 * (i % 2);
    }
    for (int i = 0; i < 4; ++i) {
      const float x = RightEntry(RowOfRight(lane, i), lane >> 2);
      right[2 * lane + i / 2] |= BitsOf(format, x) << 16 * (i % 2);
    }
  }
}

// "Matrix fragments for mma.m16n8k8", .tf32.
void PackTf32(Buffer<uint32_t>& left, Buffer<uint32_t>& right) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = i == 0 || i == 2 ? lane >> 2 : (lane >> 2) + 8;
      const int column = i < 2 ? lane & 3 : (lane & 3) + 4;
      left[4 * lane + i] = BitsOf(Format::kTf32, LeftEntry(row, column));
    }
    for (int i = 0; i < 2; ++i) {
      const int row = i == 0 ? lane & 3 : (lane & 3) + 4;
      right[2 * lane + i] = BitsOf(Format::kTf32, RightEntry(row, lane >> 2));
    }
  }
}

float Expected(int row, int column, int depth) {
  float sum = 0;
  for (int k = 0; k < depth; ++k) {
    sum += LeftEntry(row, k) * RightEntry(k, column);
  }
  return sum;
}

class MultiplyTest : public testing::TestWithParam<Format> {};

TEST_P(MultiplyTest, HasTheLayoutOfThePtxIsa) {
  const bool tf32 = GetParam() == Format::kTf32;
  Buffer<uint32_t> left(128), right(64);
  Buffer<float> sums(128);
  if (tf32) {
    PackTf32(left, right);
  } else {
    PackHalves(GetParam(), left, right);
  }
  for (int k = 0; k < 128; ++k) sums[k] = static_cast<float>(1000 * k);
  ASSERT_EQ(MultiplyOnce(GetParam(), left.data(), right.data(), sums.data()),
            cudaSuccess)
      << emulator::LastProblem();
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = i < 2 ? lane >> 2 : (lane >> 2) + 8;
      const int column = (lane & 3) * 2 + (i & 1);
      EXPECT_EQ(sums[4 * lane + i], static_cast<float>(1000 * (4 * lane + i)) +
                                        Expected(row, column, tf32 ? 8 : 16))
          << "lane " << lane << ", sum " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, MultiplyTest,
                         testing::Values(Format::kBFloat16, Format::kFloat16,
                                         Format::kTf32));

// The assumption about rounding holds for these instructions too: terms below
// the last place of the largest vanish, and the error can be made as large as
// is assumed: 16 / 4 steps of 6 last places.
TEST(MultiplyRoundingTest, IsTheTensorCoresOfTheAssumption) {
  Buffer<uint32_t> left(128), right(64);
  Buffer<float> sums(128);
  const uint32_t one = BitsOf(Format::kBFloat16, 1);
  const uint32_t tiny = BitsOf(Format::kBFloat16, 0.75f * 0x1p-23f);
  for (int k = 0; k < 128; ++k) left[k] = tiny | tiny << 16;
  for (int k = 0; k < 64; ++k) right[k] = one | one << 16;
  for (int direction : {0, -1}) {
    for (int k = 0; k < 128; ++k) sums[k] = 1;
    emulator::tensor_core_error = direction;
    ASSERT_EQ(
        MultiplyOnce(Format::kBFloat16, left.data(), right.data(), sums.data()),
        cudaSuccess);
    emulator::tensor_core_error = 0;
    if (direction == 0) {
      EXPECT_EQ(sums[5], 1);
    } else {
      EXPECT_NEAR(sums[5], 1 + (16 * 0.75 - 4 * 6) * 0x1p-23, 4 * 0x1p-23);
    }
  }
}

TEST(MultiplyRoundingTest, Tf32DropsThirteenBits) {
  Buffer<uint32_t> left(128), right(64);
  Buffer<float> sums(128);
  for (int k = 0; k < 128; ++k) left[k] = BitsOf(Format::kTf32, 1) | 0x1fff;
  for (int k = 0; k < 64; ++k) right[k] = BitsOf(Format::kTf32, 1) | 0x1fff;
  ASSERT_EQ(MultiplyOnce(Format::kTf32, left.data(), right.data(), sums.data()),
            cudaSuccess);
  for (int k = 0; k < 128; ++k) EXPECT_EQ(sums[k], 8);
}

TEST(LoadMatricesTest, HasTheLayoutOfThePtxIsa) {
  for (bool transposed : {false, true}) {
    Buffer<uint32_t> rows(128), out(128);
    // Entry (matrix, row, column) is 64 matrix + 8 row + column.
    for (uint32_t k = 0; k < 128; ++k) rows[k] = 2 * k | (2 * k + 1) << 16;
    ASSERT_EQ(LoadOnce(transposed, rows.data(), out.data()), cudaSuccess)
        << emulator::LastProblem();
    for (uint32_t lane = 0; lane < 32; ++lane) {
      for (uint32_t m = 0; m < 4; ++m) {
        const uint32_t line = lane / 4, first = lane % 4 * 2;
        const uint32_t low = transposed ? 8 * first + line : 8 * line + first;
        const uint32_t high = low + (transposed ? 8 : 1);
        EXPECT_EQ(out[4 * lane + m], (64 * m + low) | (64 * m + high) << 16)
            << "lane " << lane << ", matrix " << m << (transposed ? "^T" : "");
      }
    }
  }
}

TEST(CopyAsyncTest, FillsWithZeros) {
  for (int size : {4, 8, 16}) {
    for (int bytes = 0; bytes <= size; ++bytes) {
      Buffer<char> in(std::max(bytes, 1)), out(size);
      for (int k = 0; k < bytes; ++k) in[k] = static_cast<char>(k + 1);
      ASSERT_EQ(CopyOnce(size, bytes, in.data(), out.data()), cudaSuccess)
          << emulator::LastProblem();
      for (int k = 0; k < size; ++k) EXPECT_EQ(out[k], k < bytes ? k + 1 : 0);
    }
  }
}

TEST(CopyAsyncTest, ReadsNoMoreThanItIsTold) {
  Buffer<char> in(5), out(16);
  EXPECT_EQ(CopyOnce(16, 5, in.data(), out.data()), cudaSuccess);
  EXPECT_NE(CopyOnce(16, 6, in.data(), out.data()), cudaSuccess);
  EXPECT_THAT(emulator::LastProblem(), HasSubstr("out of bounds: buffer + 0"));
  EXPECT_NE(CopyOnce(4, 5, in.data(), out.data()), cudaSuccess);
  EXPECT_THAT(emulator::LastProblem(), HasSubstr("cp.async of 4 bytes, 5 of"));
}

struct ProductOutcome {
  cudaError_t error;
  std::string problem;
  int conflict;
  std::string conflict_text;
};

// The product of integers with a mistake; compared if the launch succeeds.
ProductOutcome RunProduct(TileMistake mistake) {
  constexpr int kDepth = 192;
  Buffer<uint16_t> left(size_t{32} * kDepth, "left");
  Buffer<uint16_t> right(size_t{16} * kDepth, "right");
  Buffer<float> out(size_t{32} * 16, "out");
  const auto bits = [](float x) {
    return static_cast<uint16_t>(BitsOf(Format::kBFloat16, x));
  };
  for (int k = 0; k < 32 * kDepth; ++k) {
    left[k] = bits(LeftEntry(k / kDepth, k % kDepth));
  }
  for (int k = 0; k < 16 * kDepth; ++k) {
    right[k] = bits(RightEntry(k % kDepth, k / kDepth));
  }
  emulator::CountBankConflicts(true);
  const cudaError_t error =
      StreamedProduct(mistake, kDepth, left.data(), right.data(), out.data());
  emulator::CountBankConflicts(false);
  for (int k = 0; error == cudaSuccess && k < 32 * 16; ++k) {
    EXPECT_EQ(out[k], Expected(k / 16, k % 16, kDepth));
  }
  return {error, error == cudaSuccess ? "" : emulator::LastProblem(),
          emulator::WorstBankConflict(), emulator::WorstBankConflictText()};
}

TEST(StreamedProductTest, IsRight) {
  const ProductOutcome outcome = RunProduct(TileMistake::kNone);
  EXPECT_EQ(outcome.error, cudaSuccess) << outcome.problem;
  EXPECT_EQ(outcome.conflict, 1) << outcome.conflict_text;
}

TEST(StreamedProductTest, BankConflictsAreCounted) {
  const ProductOutcome rows = RunProduct(TileMistake::kNoSwizzle);
  EXPECT_EQ(rows.error, cudaSuccess) << rows.problem;
  EXPECT_EQ(rows.conflict, 8);
  EXPECT_THAT(rows.conflict_text,
              HasSubstr("8 wavefronts for one: ldmatrix of 16 bytes per lane, "
                        "at offsets 0 128 256"));
  const ProductOutcome columns = RunProduct(TileMistake::kColumnStores);
  EXPECT_EQ(columns.error, cudaSuccess) << columns.problem;
  EXPECT_EQ(columns.conflict, 32);
  EXPECT_THAT(columns.conflict_text, HasSubstr("a store of 4 bytes per lane"));
}

struct TileCase {
  TileMistake mistake;
  const char* says;
};

class TileMistakeTest : public testing::TestWithParam<TileCase> {};

TEST_P(TileMistakeTest, IsFound) {
  const ProductOutcome outcome = RunProduct(GetParam().mistake);
  EXPECT_NE(outcome.error, cudaSuccess);
  EXPECT_THAT(outcome.problem, HasSubstr(GetParam().says));
  EXPECT_EQ(RunProduct(TileMistake::kNone).error, cudaSuccess);
}

constexpr const char* kReadTooEarly = "a copy is pending: read of shared";

INSTANTIATE_TEST_SUITE_P(
    All, TileMistakeTest,
    testing::Values(
        TileCase{TileMistake::kNoWait, kReadTooEarly},
        TileCase{TileMistake::kWaitForFewer, kReadTooEarly},
        TileCase{TileMistake::kNoCommit, kReadTooEarly},
        TileCase{TileMistake::kNoBarrierAfterWait, kReadTooEarly},
        TileCase{TileMistake::kNoBarrierBeforeCopy,
                 "race: read and write at shared memory"},
        TileCase{TileMistake::kCopiesLeft, "never waited for: "},
        TileCase{TileMistake::kSourceWritten,
                 "a copy is pending: write to left + 0"},
        TileCase{TileMistake::kStoreUnderCopy,
                 "a copy is pending: write to shared memory"},
        TileCase{TileMistake::kMisalignedSource,
                 "misaligned: the source of cp.async"},
        TileCase{TileMistake::kMisalignedTarget,
                 "misaligned: the destination of cp.async"},
        TileCase{TileMistake::kMisalignedRow, "misaligned: a row of ldmatrix"},
        TileCase{TileMistake::kRowOutside, "out of bounds: a row of ldmatrix"},
        TileCase{TileMistake::kRowUnset, "never written: shared memory"},
        TileCase{TileMistake::kLaneMissingAtLoad, "divergence in a warp"},
        TileCase{TileMistake::kLaneMissingAtProduct, "divergence in a warp"},
        TileCase{TileMistake::kShuffleForBarrier, "race: write and read at"},
        TileCase{TileMistake::kAskedForTooLittle, "shared memory: a kernel"}));

}  // namespace
}  // namespace bk::broken
