// The 16-bit types of CUDA: storage, and conversion to and from float.
#ifndef BK_JAX_TESTS_CUDA_ON_CPU_HALF_H_
#define BK_JAX_TESTS_CUDA_ON_CPU_HALF_H_

#include <cstdint>

// NOLINTBEGIN: these names are CUDA's
struct __nv_bfloat16 {
  uint16_t bits;
};
struct __half {
  uint16_t bits;
};
using half = __half;

inline __half __ushort_as_half(uint16_t bits) { return {bits}; }
inline uint16_t __half_as_ushort(__half x) { return x.bits; }
// NOLINTEND

namespace bk::emulator {

inline float ToFloat(float x) { return x; }
inline float ToFloat(__nv_bfloat16 x) {
  const uint32_t bits = uint32_t{x.bits} << 16;
  float y;
  __builtin_memcpy(&y, &bits, sizeof(y));
  return y;
}
inline float ToFloat(__half x) {
  // The exponent moves from bias 15 to 127, which is exact for denormals too.
  const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16;
  uint32_t bits = uint32_t{x.bits & 0x7fffu} << 13;
  float y;
  __builtin_memcpy(&y, &bits, sizeof(y));
  y *= 0x1p112f;
  if ((x.bits & 0x7c00) == 0x7c00) {
    bits |= 0x7f800000;  // infinity or NaN
    __builtin_memcpy(&y, &bits, sizeof(y));
  }
  __builtin_memcpy(&bits, &y, sizeof(bits));
  bits |= sign;
  __builtin_memcpy(&y, &bits, sizeof(y));
  return y;
}

}  // namespace bk::emulator

// NOLINTBEGIN
inline float __half2float(__half x) { return bk::emulator::ToFloat(x); }
// NOLINTEND

#endif  // BK_JAX_TESTS_CUDA_ON_CPU_HALF_H_
