// The vector type of the kernel bodies: GCC vector extensions, so that one
// body serves every width, with loads that convert to the accumulator type.
//
// Included once per instruction set, inside which BK_ISA names the namespace
// and BK_VECTOR_BYTES the width. Bodies call no function of the standard
// library: see kernels.h for why.
#ifndef BK_ISA
#error "include from an instruction-set file that defines BK_ISA"
#endif
#ifndef BK_JAX_CUSTOM_CALLS_CPU_ISA_VECTOR_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_ISA_VECTOR_INL_H_

#include <cstdint>

#include "custom_calls/cpu/isa/registers.h"
#include "custom_calls/element.h"

#define BK_INLINE inline __attribute__((always_inline))

namespace bk::BK_ISA {

template <class Element, int kBytes>
struct VectorOf {
  typedef Element Type __attribute__((vector_size(kBytes)));
};
template <class Acc>
using Vec = typename VectorOf<Acc, BK_VECTOR_BYTES>::Type;
template <class Acc>
inline constexpr int64_t kLanes = BK_VECTOR_BYTES / sizeof(Acc);

inline constexpr int64_t kDotRows = Registers<BK_VECTOR_BYTES>::kDotRows;
inline constexpr int64_t kDotColumns = Registers<BK_VECTOR_BYTES>::kDotColumns;
inline constexpr int64_t kGramDepth = Registers<BK_VECTOR_BYTES>::kGramDepth;
inline constexpr int64_t kOuterRows = Registers<BK_VECTOR_BYTES>::kOuterRows;
inline constexpr int64_t kOuterVectors =
    Registers<BK_VECTOR_BYTES>::kOuterVectors;

using Words = VectorOf<uint32_t, BK_VECTOR_BYTES>::Type;
using HalfWords = VectorOf<uint16_t, BK_VECTOR_BYTES / 2>::Type;

// Pointers come from XLA with any alignment, so memory is always copied.
template <class To, class From>
BK_INLINE To BitCast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

template <class V>
BK_INLINE V LoadBits(const void* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}

BK_INLINE Vec<float> Load(const float* from) {
  return LoadBits<Vec<float>>(from);
}

BK_INLINE Vec<double> Load(const double* from) {
  return LoadBits<Vec<double>>(from);
}

// bf16 is the upper half of a float.
BK_INLINE Vec<float> Load(const BFloat16* from) {
  const Words bits = __builtin_convertvector(LoadBits<HalfWords>(from), Words);
  return BitCast<Vec<float>>(bits << 16);
}

// f16 by integer arithmetic, on every instruction set the same: moving the
// exponent to float's bias by 112; subnormals as integer times 2^-24; exponent
// 31 (infinity, NaN) by setting all bits of float's exponent.
BK_INLINE Vec<float> Load(const Float16* from) {
  const Words half = __builtin_convertvector(LoadBits<HalfWords>(from), Words);
  const Words magnitude = half & 0x7fff;
  const Words normal = (magnitude << 13) + (112u << 23);
  const auto mantissa = __builtin_convertvector(
      BitCast<VectorOf<int32_t, BK_VECTOR_BYTES>::Type>(magnitude), Vec<float>);
  const Words subnormal = BitCast<Words>(mantissa * 0x1p-24f);
  const Words is_subnormal = BitCast<Words>(magnitude < 0x0400);
  const Words is_special = BitCast<Words>(magnitude >= 0x7c00);
  const Words bits = (is_subnormal & subnormal) | (~is_subnormal & normal) |
                     (is_special & 0x7f800000u);
  return BitCast<Vec<float>>(bits | ((half & 0x8000) << 16));
}

// The first `count` < kLanes elements, then zeros.
template <class T>
BK_INLINE Vec<Accumulator<T>> LoadPartial(const T* from, int64_t count) {
  T padded[kLanes<Accumulator<T>>];
  __builtin_memset(padded, 0, sizeof padded);
  __builtin_memcpy(padded, from, static_cast<uint64_t>(count) * sizeof(T));
  return Load(padded);
}

template <class V, class Acc>
BK_INLINE void Store(const V& v, Acc* to) {
  __builtin_memcpy(to, &v, sizeof v);
}

// Sum of all lanes, as a tree: halves are added until one lane is left.
template <class Acc, int kBytes>
BK_INLINE Acc SumLanes(const typename VectorOf<Acc, kBytes>::Type& v) {
  if constexpr (kBytes == 2 * sizeof(Acc)) {
    return v[0] + v[1];
  } else {
    using Half = typename VectorOf<Acc, kBytes / 2>::Type;
    Half halves[2];
    __builtin_memcpy(halves, &v, sizeof v);
    return SumLanes<Acc, kBytes / 2>(halves[0] + halves[1]);
  }
}

template <class Acc>
BK_INLINE Acc Sum(const Vec<Acc>& v) {
  return SumLanes<Acc, BK_VECTOR_BYTES>(v);
}

BK_INLINE int64_t Min(int64_t x, int64_t y) { return x < y ? x : y; }

BK_INLINE constexpr int64_t PadTo(int64_t x, int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_ISA_VECTOR_INL_H_
