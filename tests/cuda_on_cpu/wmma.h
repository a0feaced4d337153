// nvcuda::wmma on the CPU: 16 x 16 tiles of the result, k = 16 for bf16 and
// f16, k = 8 for tf32.
//
// Lane l owns 4 x 2 entries of the result, and fragments of operands hold the 4
// rows and the 2 columns that these need; device code must not know that, nor
// how the real ones are laid out. tensor_core.h adds the products. As on a GPU,
// tiles begin at multiples of 32 bytes and their rows are apart by multiples of
// 16 bytes.
#ifndef BK_JAX_TESTS_CUDA_ON_CPU_WMMA_H_
#define BK_JAX_TESTS_CUDA_ON_CPU_WMMA_H_

#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>

#include "tests/cuda_on_cpu/emulator.h"
#include "tests/cuda_on_cpu/half.h"
#include "tests/cuda_on_cpu/tensor_core.h"

// NOLINTBEGIN: these names are CUDA's
namespace nvcuda::wmma {

struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
namespace precision {
struct tf32 {};
}  // namespace precision

// Operands are kept as floats, which hold every format exactly.
template <class Use, int m, int n, int k, class T, class Layout = void>
struct fragment {
  static_assert(m == 16 && n == 16 && (k == 16 || k == 8));
  static constexpr int kLines = std::is_same_v<Use, matrix_a> ? 4 : 2;
  static constexpr int num_elements = kLines * k;
  float x[num_elements];
};
template <int k>
struct fragment<accumulator, 16, 16, k, float, void> {
  static constexpr int num_elements = 8;
  float x[num_elements];
};

// tf32 keeps 10 bits of the mantissa; ties away from zero.
inline float __float_to_tf32(float x) {
  if (!std::isfinite(x)) return x;
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  bits = (bits + 0x1000) & ~uint32_t{0x1fff};
  __builtin_memcpy(&x, &bits, 4);
  return x;
}

template <class Fragment>
void fill_fragment(Fragment& f, float value) {
  bk::emulator::NoteWarpOperation();
  for (auto& x : f.x) x = value;
}

template <class S>
void CheckTile(const S* tile, unsigned ldm) {
  bk::emulator::CheckAligned(tile, 32, "the tile of a wmma call");
  const size_t bytes = size_t{ldm} * sizeof(S);
  if (bytes % 16 != 0) {
    bk::emulator::Abandon("misaligned: rows of the tile of a wmma call are " +
                          std::to_string(bytes) +
                          " bytes apart, not a multiple of 16");
  }
}

// Line i of the lane's lines, element j of k, lies at i * line + j * step.
template <class Fragment, class T>
BK_UNCHECKED void LoadLines(Fragment& f, const T* first, int64_t line,
                            int64_t step, int k) {
  using bk::emulator::Access;
  for (int i = 0; i < Fragment::kLines; ++i) {
    const T* at = first + i * line;
    if (step == 1) bk::emulator::CheckAccess(at, k * sizeof(T), Access::kRead);
    for (int j = 0; j < k; ++j, at += step) {
      if (step != 1) bk::emulator::CheckAccess(at, sizeof(T), Access::kRead);
      f.x[i * k + j] = bk::emulator::ToFloat(*at);
    }
  }
}

template <int k, class T, class Layout, class S>
void load_matrix_sync(fragment<matrix_a, 16, 16, k, T, Layout>& f,
                      const S* tile, unsigned ldm) {
  bk::emulator::NoteWarpOperation();
  CheckTile(tile, ldm);
  const int row = bk::emulator::Lane() / 8 * 4;
  if constexpr (std::is_same_v<Layout, row_major>) {
    LoadLines(f, tile + row * ldm, ldm, 1, k);
  } else {
    LoadLines(f, tile + row, 1, ldm, k);
  }
}
template <int k, class T, class Layout, class S>
void load_matrix_sync(fragment<matrix_b, 16, 16, k, T, Layout>& f,
                      const S* tile, unsigned ldm) {
  bk::emulator::NoteWarpOperation();
  CheckTile(tile, ldm);
  const int column = bk::emulator::Lane() % 8 * 2;
  if constexpr (std::is_same_v<Layout, col_major>) {
    LoadLines(f, tile + column * ldm, ldm, 1, k);
  } else {
    LoadLines(f, tile + column, 1, ldm, k);
  }
}

// What the tensor core sees of an operand: tf32 drops 13 bits.
template <class T>
double Operand(float x) {
  if constexpr (std::is_same_v<T, precision::tf32>) {
    uint32_t bits;
    __builtin_memcpy(&bits, &x, 4);
    bits &= ~uint32_t{0x1fff};
    __builtin_memcpy(&x, &bits, 4);
  }
  return x;
}

template <int k, class T, class LayoutA, class LayoutB>
BK_UNCHECKED void mma_sync(fragment<accumulator, 16, 16, k, float>& d,
                           const fragment<matrix_a, 16, 16, k, T, LayoutA>& a,
                           const fragment<matrix_b, 16, 16, k, T, LayoutB>& b,
                           const fragment<accumulator, 16, 16, k, float>& c) {
  bk::emulator::NoteWarpOperation();
  double left[4 * k], right[2 * k];
  for (int e = 0; e < 4 * k; ++e) left[e] = Operand<T>(a.x[e]);
  for (int e = 0; e < 2 * k; ++e) right[e] = Operand<T>(b.x[e]);
  for (int e = 0; e < 8; ++e) {
    float sum = c.x[e];
    for (int t = 0; t < k; t += bk::emulator::kStepTerms) {
      sum = bk::emulator::TensorStep(sum, left + e / 2 * k + t,
                                     right + e % 2 * k + t);
    }
    d.x[e] = sum;
  }
}

enum layout_t { mem_row_major, mem_col_major };

template <int k>
BK_UNCHECKED void store_matrix_sync(
    float* tile, const fragment<accumulator, 16, 16, k, float>& f, unsigned ldm,
    layout_t layout) {
  bk::emulator::NoteWarpOperation();
  CheckTile(tile, ldm);
  const int row = bk::emulator::Lane() / 8 * 4;
  const int column = bk::emulator::Lane() % 8 * 2;
  for (int e = 0; e < 8; ++e) {
    const int64_t i = row + e / 2, j = column + e % 2;
    float* at = tile + (layout == mem_row_major ? i * ldm + j : j * ldm + i);
    bk::emulator::CheckAccess(at, sizeof(float), bk::emulator::Access::kWrite);
    *at = f.x[e];
  }
}

}  // namespace nvcuda::wmma
// NOLINTEND

#endif  // BK_JAX_TESTS_CUDA_ON_CPU_WMMA_H_
