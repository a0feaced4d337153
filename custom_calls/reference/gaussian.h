// The definition of the noise: ChaCha20 as RFC 8439 writes it down, and
// Box-Muller with the functions of the standard library.
#ifndef BK_JAX_CUSTOM_CALLS_REFERENCE_GAUSSIAN_H_
#define BK_JAX_CUSTOM_CALLS_REFERENCE_GAUSSIAN_H_

#include <array>
#include <cstdint>

#include "custom_calls/noise.h"

namespace bk::reference {

using ChachaBlock = std::array<uint32_t, kBlockWords>;

// The block function of RFC 8439, section 2.3.
ChachaBlock Chacha20(const uint32_t (&key)[kKeyWords], uint32_t counter,
                     const uint32_t (&nonce)[3]);

// Word `position` of a stream; noise.h says which block it is in.
uint32_t Word(const NoiseStream& stream, uint64_t position);

// Value `position` of a stream of normals, those of float or of double. The
// uniform numbers are exact, the transform is made in long double.
long double NormalOfFloat(const NoiseStream& stream, uint64_t position);
long double NormalOfDouble(const NoiseStream& stream, uint64_t position);

}  // namespace bk::reference

#endif  // BK_JAX_CUSTOM_CALLS_REFERENCE_GAUSSIAN_H_
