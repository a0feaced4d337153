#include "tests/cuda_on_cpu/matrix.h"

#include <cstring>

#include "tests/cuda_on_cpu/bank_conflicts.h"
#include "tests/cuda_on_cpu/half.h"
#include "tests/cuda_on_cpu/tensor_core.h"

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

double Element(Format format, uint32_t bits) {
  switch (format) {
    case Format::kBFloat16:
      return ToFloat(__nv_bfloat16{static_cast<uint16_t>(bits)});
    case Format::kFloat16:
      return ToFloat(__half{static_cast<uint16_t>(bits)});
    default: {
      // The tensor core drops 13 bits of a float.
      const uint32_t kept = bits & ~uint32_t{0x1fff};
      float x;
      std::memcpy(&x, &kept, sizeof(x));
      return x;
    }
  }
}

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

}  // namespace

void MmaSync(Format format, float (&d)[4], const uint32_t (&a)[4],
             const uint32_t (&b)[2], const float (&c)[4], Site site) {
  Operands mine = {};
  std::memcpy(mine.a, a, sizeof(a));
  std::memcpy(mine.b, b, sizeof(b));
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
    float sum = c[e];
    for (int k = 0; k < depth; k += kStepTerms) {
      sum = TensorStep(sum, rows[e / 2] + k, columns[e % 2] + k);
    }
    d[e] = sum;
  }
}

namespace {

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
  std::memcpy(&entry, RowOf(lanes[8 * matrix + row]).bytes + 2 * column, 2);
  return entry;
}

void NoteMatrices(const Payload* lanes, int count) {
  for (int matrix = 0; matrix < count; ++matrix) {
    const void* addresses[8];
    for (int row = 0; row < 8; ++row) {
      addresses[row] = RowOf(lanes[8 * matrix + row]).address;
    }
    NotePhase(addresses, 8, kRowBytes, "ldmatrix");
  }
}

}  // namespace

void LoadMatrices(uint32_t* registers, int count, bool transposed,
                  const void* address, Site site) {
  Row mine = {};
  const int lane = Lane();
  if (lane < 8 * count) {
    CheckAligned(address, kRowBytes, "a row of ldmatrix");
    if (SharedOffset(address) < 0) {
      Abandon("ldmatrix: a row outside of shared memory" + WhoRuns());
    }
    CheckAccess(address, kRowBytes, Access::kRead);
    std::memcpy(mine.bytes, address, kRowBytes);
    mine.address = address;
  }
  Payload payload;
  std::memcpy(&payload, &mine, sizeof(payload));
  const Payload* lanes = ExchangeInWarp(~0u, payload, site);
  if (lane == 0) NoteMatrices(lanes, count);
  const int line = lane / 4, first = lane % 4 * 2;
  for (int m = 0; m < count; ++m) {
    const auto entry = [&](int k) -> uint32_t {
      return transposed ? EntryOf(lanes, m, first + k, line)
                        : EntryOf(lanes, m, line, first + k);
    };
    registers[m] = entry(0) | entry(1) << 16;
  }
}

}  // namespace bk::emulator
