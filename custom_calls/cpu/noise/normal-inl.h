// Uniform bits to pairs of standard normals (Box-Muller), with nothing but
// correctly rounded +, -, *, / and sqrt: the same bits on every machine.
//
//   2 E = -2 ln u,   u uniform on (0, 1)
//   z0 = sqrt(2 E) cos(angle),  z1 = sqrt(2 E) sin(angle)
//
// Two words make a pair. `radius` is u: its sign chooses the half, the rest is
// the distance v from the nearer end of (0, 1), as a floating-point number with
// full relative precision, so that neither the tail (u near 0) nor the centre
// (u near 1) of the distribution lies on a coarse grid. `angle` is a sign, a
// swap of the two coordinates, and an angle of the eighth before and after 0.
// In float, 8 bits of the angle that its precision cannot use lengthen v:
//
//          smallest u   largest |z|   angles
//   float  2^-41        7.54          2^24
//   double 2^-65        9.49          2^53
#ifndef BK_JAX_CUSTOM_CALLS_CPU_NOISE_NORMAL_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_NOISE_NORMAL_INL_H_

#include "custom_calls/cpu/isa/vector-inl.h"
#include "custom_calls/normal_format-inl.h"

namespace bk::BK_ISA {

template <class Real>
using BitsOf = Vec<typename NormalFormat<Real>::Bits>;
template <class Real>
using SignedBitsOf = Vec<typename NormalFormat<Real>::SignedBits>;

template <class Real>
struct NormalPair {
  Vec<Real> z0, z1;
};

template <class Real, int kTerms>
BK_INLINE Vec<Real> Polynomial(const Real (&c)[kTerms], const Vec<Real>& x) {
  Vec<Real> sum = Vec<Real>{} + c[kTerms - 1];
#pragma GCC unroll 16
  for (int k = kTerms - 2; k >= 0; --k) sum = sum * x + c[k];
  return sum;
}

BK_INLINE Vec<float> Sqrt(const Vec<float>& x) {
  Vec<float> root;
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes<float>; ++i) root[i] = __builtin_sqrtf(x[i]);
  return root;
}
BK_INLINE Vec<double> Sqrt(const Vec<double>& x) {
  Vec<double> root;
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes<double>; ++i) root[i] = __builtin_sqrt(x[i]);
  return root;
}

// 2^32 v in float, 2^64 v in double: all bits but the sign, and a half below
// the last one, so it is never 0.
BK_INLINE Vec<float> Distance(const Words& radius, const Words& angle) {
  using Ints = SignedBitsOf<float>;
  const Words high = radius & 0x7fffffff;
  const Words low = angle & 0xff;
  return __builtin_convertvector(BitCast<Ints>(high), Vec<float>) +
         (__builtin_convertvector(BitCast<Ints>(low), Vec<float>) * 0x1p-8F +
          0x1p-9F);
}
BK_INLINE Vec<double> Distance(const BitsOf<double>& radius,
                               const BitsOf<double>& /*angle*/) {
  const uint64_t magic = NormalFormat<double>::kMagic;
  const auto high = BitCast<Vec<double>>(((radius << 1) >> 33) | magic);
  const auto low = BitCast<Vec<double>>((radius & 0xffffffff) | magic);
  return (high - 0x1p52) * 0x1p32 + ((low - 0x1p52) + 0.5);
}

// -2 ln u. With u = 2^k (1 - g), 0 < g <= 1/2: for u <= 1/2 from the exponent
// and the mantissa of v = u, otherwise k = 0 and g = v = 1 - u.
//   -ln(1 - g) = 2 atanh(s),  s = g / (2 - g)
template <class Real>
BK_INLINE Vec<Real> MinusTwoLog(const BitsOf<Real>& radius,
                                const Vec<Real>& distance) {
  using F = NormalFormat<Real>;
  constexpr Real kUnit = F::kWidth == 32 ? 0x1p-32 : 0x1p-64;
  const auto bits = BitCast<BitsOf<Real>>(distance);
  const auto lower = BitCast<SignedBitsOf<Real>>(radius) < 0;
  const BitsOf<Real> mantissa = bits & ((uint64_t{1} << F::kMantissa) - 1);
  const auto fraction = BitCast<Vec<Real>>(mantissa | F::kHalf);
  const Vec<Real> g = lower ? 1 - fraction : distance * kUnit;
  const auto exponent = BitCast<Vec<Real>>((bits >> F::kMantissa) | F::kMagic);
  const auto k = BitCast<Vec<Real>>(
      BitCast<BitsOf<Real>>(exponent -
                            (F::kMagicValue + F::kBias + F::kWidth)) &
      BitCast<BitsOf<Real>>(lower));
  const Vec<Real> s = g / (2 - g);
  return k * F::kMinusTwoLn2 + s * Polynomial<Real>(F::kAtanh, s * s);
}

// One pair per lane.
template <class Real>
BK_INLINE NormalPair<Real> Normals(const BitsOf<Real>& radius,
                                   const BitsOf<Real>& angle) {
  using F = NormalFormat<Real>;
  const Vec<Real> length =
      Sqrt(MinusTwoLog<Real>(radius, Distance(radius, angle)));
  const BitsOf<Real> sign = angle & (typename F::Bits{1} << (F::kWidth - 1));
  const auto signed_length =
      BitCast<Vec<Real>>(BitCast<BitsOf<Real>>(length) ^ sign);
  // An odd multiple of 2^-kMantissa in (-1/2, 1/2): never 0.
  const BitsOf<Real> turn =
      ((angle << 2) >> (F::kWidth - F::kMantissa)) | (F::kOne | 1);
  const Vec<Real> t = BitCast<Vec<Real>>(turn) - Real{1.5};
  const Vec<Real> square = t * t;
  const Vec<Real> sine = t * Polynomial<Real>(F::kSin, square);
  const Vec<Real> cosine = Polynomial<Real>(F::kCos, square);
  const auto swap = BitCast<SignedBitsOf<Real>>(angle << 1) < 0;
  return {signed_length * (swap ? sine : cosine),
          signed_length * (swap ? cosine : sine)};
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_NOISE_NORMAL_INL_H_
