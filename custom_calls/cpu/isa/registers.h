// What fits into the vector registers of an instruction set.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_ISA_REGISTERS_H_
#define BK_JAX_CUSTOM_CALLS_CPU_ISA_REGISTERS_H_

#include <cstdint>

namespace bk {

// Micro-tiles of kDotRows x kDotColumns inner products and of kOuterRows x
// kOuterVectors vectors of outer products. 16 registers hold 12 sums, what they
// are multiplied from, and nothing else. Sums of inner products leave their
// registers after kGramDepth products, see gram_tile-inl.h.
template <int kVectorBytes>
struct Registers {
  static constexpr int64_t kDotRows = 3;
  static constexpr int64_t kDotColumns = 4;
  static constexpr int64_t kGramDepth = 512;
  static constexpr int64_t kOuterRows = 6;
  static constexpr int64_t kOuterVectors = 2;
};

// With 512-bit vectors come 32 registers, which hold 24 sums. A row of products
// takes half the vectors, so that deeper sums have shorter chains all the same.
template <>
struct Registers<64> {
  static constexpr int64_t kDotRows = 6;
  static constexpr int64_t kDotColumns = 4;
  static constexpr int64_t kGramDepth = 768;
  static constexpr int64_t kOuterRows = 8;
  static constexpr int64_t kOuterVectors = 3;
};

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_ISA_REGISTERS_H_
