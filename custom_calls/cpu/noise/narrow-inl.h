// Stores that round once, to nearest and ties to even, by integer arithmetic:
// the same on every instruction set. NaN stays NaN, what is too large becomes
// infinite.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_NOISE_NARROW_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_NOISE_NARROW_INL_H_

#include "custom_calls/cpu/isa/vector-inl.h"

namespace bk::BK_ISA {

BK_INLINE void StoreRounded(const Vec<float>& v, float* to) { Store(v, to); }
BK_INLINE void StoreRounded(const Vec<double>& v, double* to) { Store(v, to); }

BK_INLINE Words Select(const Words& mask, const Words& yes, const Words& no) {
  return (mask & yes) | (~mask & no);
}

// Just below half a step, and the half itself if the result is odd.
BK_INLINE void StoreRounded(const Vec<float>& v, BFloat16* to) {
  const auto bits = BitCast<Words>(v);
  const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const Words is_nan = BitCast<Words>((bits & 0x7fffffff) > 0x7f800000);
  const Words half = Select(is_nan, (bits >> 16) | 0x40, rounded);
  Store(__builtin_convertvector(half, HalfWords), to);
}

// A normal result moves the exponent from float's bias to f16's, by 112. For
// a subnormal one, adding 1/2 lines up the last bits: float rounds there.
BK_INLINE void StoreRounded(const Vec<float>& v, Float16* to) {
  const auto bits = BitCast<Words>(v);
  const Words magnitude = bits & 0x7fffffff;
  const Words normal =
      (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  const Words subnormal =
      BitCast<Words>(BitCast<Vec<float>>(magnitude) + 0.5F) - 0x3f000000;
  const Words is_subnormal = BitCast<Words>(magnitude < (113u << 23));
  const Words is_large = BitCast<Words>(magnitude >= 0x477ff000);  // 65520
  const Words is_nan = BitCast<Words>(magnitude > 0x7f800000);
  const Words finite = Select(is_subnormal, subnormal, normal);
  const Words special = (is_nan & 0x7e00) | (~is_nan & 0x7c00);
  const Words half =
      Select(is_large, special, finite) | ((bits >> 16) & 0x8000);
  Store(__builtin_convertvector(half, HalfWords), to);
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_NOISE_NARROW_INL_H_
