// mma.sync and ldmatrix, with the layouts of the PTX ISA.

#include <cstring>

#include "tests/cuda_on_cpu/bank_conflicts.h"
#include "tests/cuda_on_cpu/formats.h"
#include "tests/cuda_on_cpu/instructions.h"
#include "tests/cuda_on_cpu/tensor_core.h"
#include "tests/cuda_on_cpu/wmma.h"

namespace bk::emulator {
namespace {

constexpr int kMaxDepth = 16;

// What the lanes of a warp bring to a product.
struct Operands {
  uint32_t a[4];
  uint32_t b[2];
  uint64_t unused;
};
static_assert(sizeof(Operands) == sizeof(Payload));

// Element k of a line (a row of A, a column of B) lies in the lane
// 4 * line % 8 + `lane`, in the half `half` of it, in register `step` of the
// line.
struct Place {
  int lane, half, step;
};
Place PlaceOf(Format format, int k) {
  if (format == Format::kTf32) return {k % 4, 0, k / 4};
  return {k % 8 / 2, k % 2, k / 8};
}

Operands OperandsOf(const Payload& payload) {
  Operands operands;
  std::memcpy(&operands, &payload, sizeof(operands));
  return operands;
}

// Row `row` of A: registers 0 and 2 have rows up to 7, 1 and 3 the others.
void RowOfA(Format format, const Payload* lanes, int row, int depth,
            double* out) {
  for (int k = 0; k < depth; ++k) {
    const Place place = PlaceOf(format, k);
    const Operands from = OperandsOf(lanes[row % 8 * 4 + place.lane]);
    const uint32_t bits = from.a[place.step * 2 + row / 8];
    out[k] = Element(format, bits >> 16 * place.half);
  }
}

void ColumnOfB(Format format, const Payload* lanes, int column, int depth,
               double* out) {
  for (int k = 0; k < depth; ++k) {
    const Place place = PlaceOf(format, k);
    const Operands from = OperandsOf(lanes[column * 4 + place.lane]);
    out[k] = Element(format, from.b[place.step] >> 16 * place.half);
  }
}

// sums += left right; all lanes of the warp have to come.
void Multiply(Format format, const uint32_t (&left)[4],
              const uint32_t (&right)[2], float (&sums)[4], Site site) {
  Operands mine = {};
  std::memcpy(mine.a, left, sizeof(left));
  std::memcpy(mine.b, right, sizeof(right));
  Payload payload;
  std::memcpy(&payload, &mine, sizeof(payload));
  const Payload* lanes = ExchangeInWarp(~0u, payload, site);
  const int depth = format == Format::kTf32 ? 8 : 16;
  const int lane = Lane();
  double rows[2][kMaxDepth], columns[2][kMaxDepth];
  for (int i = 0; i < 2; ++i) {
    RowOfA(format, lanes, lane / 4 + 8 * i, depth, rows[i]);
    ColumnOfB(format, lanes, lane % 4 * 2 + i, depth, columns[i]);
  }
  for (int e = 0; e < 4; ++e) {
    for (int k = 0; k < depth; k += kStepTerms) {
      sums[e] = TensorStep(sums[e], rows[e / 2] + k, columns[e % 2] + k);
    }
  }
}

constexpr int kMatrices = 4;
constexpr size_t kRowBytes = 16;

struct Row {
  char bytes[kRowBytes];
  const void* address;
  uint64_t unused;
};
static_assert(sizeof(Row) == sizeof(Payload));

Row RowOf(const Payload& payload) {
  Row row;
  std::memcpy(&row, &payload, sizeof(row));
  return row;
}

uint16_t EntryOf(const Payload* lanes, int matrix, int row, int column) {
  uint16_t entry;
  std::memcpy(&entry,
              RowOf(lanes[8 * matrix + row]).bytes + int64_t{2} * column, 2);
  return entry;
}

void NoteMatrices(const Payload* lanes) {
  for (int matrix = 0; matrix < kMatrices; ++matrix) {
    const void* addresses[8];
    for (int row = 0; row < 8; ++row) {
      addresses[row] = RowOf(lanes[8 * matrix + row]).address;
    }
    NotePhase(addresses, 8, kRowBytes, "ldmatrix");
  }
}

}  // namespace

uint32_t SharedAddressOf(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const char*>(pointer) -
                               SharedBase());
}

void MultiplyBFloat16(const uint32_t (&left)[4], const uint32_t (&right)[2],
                      float (&sums)[4], Site site) {
  Multiply(Format::kBFloat16, left, right, sums, site);
}
void MultiplyFloat16(const uint32_t (&left)[4], const uint32_t (&right)[2],
                     float (&sums)[4], Site site) {
  Multiply(Format::kFloat16, left, right, sums, site);
}
void MultiplyTf32(const uint32_t (&left)[4], const uint32_t (&right)[2],
                  float (&sums)[4], Site site) {
  Multiply(Format::kTf32, left, right, sums, site);
}

uint32_t RoundToTf32(float x) {
  const float rounded = nvcuda::wmma::__float_to_tf32(x);
  uint32_t bits;
  std::memcpy(&bits, &rounded, sizeof(bits));
  return bits;
}

void LoadMatrices(uint32_t row, bool transposed, uint32_t (&to)[4], Site site) {
  Row mine = {};
  mine.address = SharedBase() + row;
  CheckAligned(mine.address, kRowBytes, "a row of ldmatrix");
  if (SharedOffset(mine.address) < 0) {
    Abandon("out of bounds: a row of ldmatrix at shared memory + " +
            std::to_string(row) + WhoRuns());
  }
  CheckAccess(mine.address, kRowBytes, Access::kRead);
  std::memcpy(mine.bytes, mine.address, kRowBytes);
  Payload payload;
  std::memcpy(&payload, &mine, sizeof(payload));
  const Payload* lanes = ExchangeInWarp(~0u, payload, site);
  if (Lane() == 0) NoteMatrices(lanes);
  const int line = Lane() / 4, first = Lane() % 4 * 2;
  for (int m = 0; m < kMatrices; ++m) {
    const auto entry = [&](int k) -> uint32_t {
      return transposed ? EntryOf(lanes, m, first + k, line)
                        : EntryOf(lanes, m, line, first + k);
    };
    to[m] = entry(0) | entry(1) << 16;
  }
}

void StoreShared(uint32_t to, const uint32_t (&words)[4]) {
  char* address = SharedBase() + to;
  CheckAligned(address, sizeof(words), "a store to shared memory");
  if (SharedOffset(address) < 0) {
    Abandon("out of bounds: a store at shared memory + " + std::to_string(to) +
            WhoRuns());
  }
  CheckAccess(address, sizeof(words), Access::kWrite,
              __builtin_return_address(0));
  std::memcpy(address, words, sizeof(words));
}

}  // namespace bk::emulator
