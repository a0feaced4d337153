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
// In float, 8 bits of the angle that its precision can not use lengthen v:
//
//          smallest u   largest |z|   angles
//   float  2^-41        7.54          2^24
//   double 2^-65        9.49          2^53
#ifndef BK_JAX_CUSTOM_CALLS_CPU_NORMAL_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_NORMAL_INL_H_

#include "custom_calls/cpu/vector-inl.h"

namespace bk::BK_ISA {

// Formats, and minimax polynomials (relative error, before rounding) of
//   4 atanh(s) / s          in s^2 on [0, 1/9]
//   sin(pi/2 t) / t         in t^2 on [0, 1/4]
//   cos(pi/2 t)             in t^2 on [0, 1/4]
template <class Real>
struct NormalFormat;

template <>
struct NormalFormat<float> {
  using Bits = uint32_t;
  using SignedBits = int32_t;
  static constexpr int kWidth = 32;
  static constexpr int kMantissa = 23;
  static constexpr Bits kOne = 0x3f800000;
  static constexpr Bits kHalf = 0x3f000000;
  // 2^23 as bits; adding e to it gives the float 2^23 + e.
  static constexpr Bits kMagic = 0x4b000000;
  static constexpr float kMagicValue = 0x1p23F;
  static constexpr int kBias = 126;
  static constexpr float kMinusTwoLn2 = -0x1.62e43p+0F;
  static constexpr float kAtanh[] = {0x1p+2F, 0x1.5554ep+0F, 0x1.99dae6p-1F,
                                     0x1.1e5108p-1F, 0x1.208bdep-1F};  // 4e-9
  static constexpr float kSin[] = {0x1.921fb6p+0F, -0x1.4abbbap-1F,
                                   0x1.465e92p-4F, -0x1.2d9302p-8F};  // 3e-9
  static constexpr float kCos[] = {0x1p+0F, -0x1.3bd3ccp+0F, 0x1.03c1dap-2F,
                                   -0x1.55c4eap-6F, 0x1.d99f5p-11F};  // 6e-11
};

template <>
struct NormalFormat<double> {
  using Bits = uint64_t;
  using SignedBits = int64_t;
  static constexpr int kWidth = 64;
  static constexpr int kMantissa = 52;
  static constexpr Bits kOne = 0x3ff0000000000000;
  static constexpr Bits kHalf = 0x3fe0000000000000;
  static constexpr Bits kMagic = 0x4330000000000000;
  static constexpr double kMagicValue = 0x1p52;
  static constexpr int kBias = 1022;
  static constexpr double kMinusTwoLn2 = -0x1.62e42fefa39efp+0;
  static constexpr double kAtanh[] = {0x1p+2,
                                      0x1.5555555555525p+0,
                                      0x1.99999999a1f86p-1,
                                      0x1.2492492004af7p-1,
                                      0x1.c71c74505716bp-2,
                                      0x1.745cae0e5e88dp-2,
                                      0x1.3b1e4879940d9p-2,
                                      0x1.1062d80cd54e9p-2,
                                      0x1.f01e18808e8f4p-3,
                                      0x1.549c726fb01f5p-3,
                                      0x1.5d63b22205p-2};  // 1e-18
  static constexpr double kSin[] = {
      0x1.921fb54442d18p+0,  -0x1.4abbce625be53p-1, 0x1.466bc6775aad9p-4,
      -0x1.32d2cce62abbdp-8, 0x1.50783485c2cap-13,  -0x1.e3074b42b2ed8p-19,
      0x1.e8eec790acd81p-25, -0x1.6c58c9059c204p-31};  // 2e-21
  static constexpr double kCos[] = {0x1p+0,
                                    -0x1.3bd3cc9be45dep+0,
                                    0x1.03c1f081b5aaap-2,
                                    -0x1.55d3c7e3c8d5dp-6,
                                    0x1.e1f506830409fp-11,
                                    -0x1.a6d1ec3d5a7c7p-16,
                                    0x1.f9cc15e340761p-22,
                                    -0x1.b2586fd4d9254p-28};  // 4e-20
};

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

#endif  // BK_JAX_CUSTOM_CALLS_CPU_NORMAL_INL_H_
