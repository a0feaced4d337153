// Constants of the transform from bits to normals, for every body of it: those
// of the CPU's instruction sets and that of GPUs, each in its own namespace
// BK_ISA. See cpu/noise/normal-inl.h.
#ifndef BK_JAX_CUSTOM_CALLS_NORMAL_FORMAT_INL_H_
#define BK_JAX_CUSTOM_CALLS_NORMAL_FORMAT_INL_H_

#include <cstdint>

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

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_NORMAL_FORMAT_INL_H_
