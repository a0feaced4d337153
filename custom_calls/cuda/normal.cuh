// Bits to pairs of normals on a GPU: cpu/noise/normal-inl.h, one pair per
// thread. The same operations in the same order, each of them correctly
// rounded: nvcc's defaults for division and square root, and -fmad=false.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_NORMAL_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_NORMAL_CUH_

#include "custom_calls/cuda/platform.cuh"

#define BK_ISA cuda
#include "custom_calls/normal_format-inl.h"
#undef BK_ISA

namespace bk::cuda {

__device__ inline float FromBits(uint32_t bits) {
  return __uint_as_float(bits);
}
__device__ inline double FromBits(uint64_t bits) {
  return __longlong_as_double(
      static_cast<long long>(bits));  // NOLINT(google-runtime-int)
}
__device__ inline uint32_t ToBits(float x) { return __float_as_uint(x); }
__device__ inline uint64_t ToBits(double x) {
  return static_cast<uint64_t>(__double_as_longlong(x));
}

// Polynomials of NormalFormat<Real>, by Horner's rule from term k on.
enum class Series { kAtanh, kSin, kCos };

template <class Real, Series kSeries>
constexpr int Terms() {
  using F = NormalFormat<Real>;
  if constexpr (kSeries == Series::kAtanh) {
    return sizeof(F::kAtanh) / sizeof(Real);
  }
  if constexpr (kSeries == Series::kSin) return sizeof(F::kSin) / sizeof(Real);
  return sizeof(F::kCos) / sizeof(Real);
}

template <class Real, Series kSeries>
constexpr Real Coefficient(int k) {
  using F = NormalFormat<Real>;
  if constexpr (kSeries == Series::kAtanh) return F::kAtanh[k];
  if constexpr (kSeries == Series::kSin) return F::kSin[k];
  return F::kCos[k];
}

template <class Real, Series kSeries, int k = 0>
__device__ inline Real Polynomial(Real x) {
  constexpr Real kTerm = Coefficient<Real, kSeries>(k);
  if constexpr (k + 1 == Terms<Real, kSeries>()) {
    return kTerm;
  } else {
    return Polynomial<Real, kSeries, k + 1>(x) * x + kTerm;
  }
}

__device__ inline float Distance(uint32_t radius, uint32_t angle) {
  const auto high = static_cast<int32_t>(radius & 0x7fffffff);
  const auto low = static_cast<int32_t>(angle & 0xff);
  return static_cast<float>(high) +
         (static_cast<float>(low) * 0x1p-8F + 0x1p-9F);
}
__device__ inline double Distance(uint64_t radius, uint64_t /*angle*/) {
  constexpr uint64_t kMagic = NormalFormat<double>::kMagic;
  const double high = FromBits(((radius << 1) >> 33) | kMagic);
  const double low = FromBits((radius & 0xffffffff) | kMagic);
  return (high - 0x1p52) * 0x1p32 + ((low - 0x1p52) + 0.5);
}

// -2 ln u.
template <class Real>
__device__ inline Real MinusTwoLog(typename NormalFormat<Real>::Bits radius,
                                   Real distance) {
  using F = NormalFormat<Real>;
  using Bits = typename F::Bits;
  constexpr Real kUnit = F::kWidth == 32 ? 0x1p-32 : 0x1p-64;
  const Bits bits = ToBits(distance);
  const bool lower = radius >> (F::kWidth - 1) != 0;
  const Bits mantissa = bits & ((Bits{1} << F::kMantissa) - 1);
  const Real fraction = FromBits(static_cast<Bits>(mantissa | F::kHalf));
  const Real g = lower ? 1 - fraction : distance * kUnit;
  const Real exponent =
      FromBits(static_cast<Bits>((bits >> F::kMantissa) | F::kMagic));
  const Real k =
      lower ? exponent - (F::kMagicValue + F::kBias + F::kWidth) : Real{0};
  const Real s = g / (2 - g);
  return k * F::kMinusTwoLn2 + s * Polynomial<Real, Series::kAtanh>(s * s);
}

__device__ inline float Root(float x) { return sqrtf(x); }
__device__ inline double Root(double x) { return sqrt(x); }

template <class Real>
struct Normals {
  Real z0, z1;
};

template <class Real>
__device__ inline Normals<Real> NormalsOf(
    typename NormalFormat<Real>::Bits radius,
    typename NormalFormat<Real>::Bits angle) {
  using F = NormalFormat<Real>;
  using Bits = typename F::Bits;
  const Real length = Root(MinusTwoLog<Real>(radius, Distance(radius, angle)));
  const Bits sign = angle & (Bits{1} << (F::kWidth - 1));
  const Real signed_length = FromBits(static_cast<Bits>(ToBits(length) ^ sign));
  const Bits turn =
      ((angle << 2) >> (F::kWidth - F::kMantissa)) | (F::kOne | 1);
  const Real t = FromBits(turn) - Real{1.5};
  const Real square = t * t;
  const Real sine = t * Polynomial<Real, Series::kSin>(square);
  const Real cosine = Polynomial<Real, Series::kCos>(square);
  const bool swap = (angle >> (F::kWidth - 2) & 1) != 0;
  return {signed_length * (swap ? sine : cosine),
          signed_length * (swap ? cosine : sine)};
}

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_NORMAL_CUH_
