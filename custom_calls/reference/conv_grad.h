// The definition of the gradient of a convolution kernel.
#ifndef BK_JAX_CUSTOM_CALLS_REFERENCE_CONV_GRAD_H_
#define BK_JAX_CUSTOM_CALLS_REFERENCE_CONV_GRAD_H_

#include <array>
#include <cmath>
#include <cstdint>

#include "custom_calls/reference/convert.h"
#include "custom_calls/shapes.h"

namespace bk::reference {

using Position = std::array<int64_t, 3>;

// The input pixel that output pixel t meets at kernel offset k, or false.
inline bool InputPixel(const ConvShape& s, const Position& t, const Position& k,
                       Position* in) {
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t at =
        t[axis] * s.stride[axis] + k[axis] * s.dilation[axis] - s.low[axis];
    if (at < 0 || at % s.input_dilation[axis] != 0) return false;
    (*in)[axis] = at / s.input_dilation[axis];
    if ((*in)[axis] >= s.in[axis]) return false;
  }
  return true;
}

// Position number `n` of a box of `size`, the last axis fastest.
inline Position PositionOf(int64_t n, const int64_t (&size)[3]) {
  return {n / size[2] / size[1], n / size[2] % size[1], n % size[2]};
}

inline int64_t Flat(const Position& at, const int64_t (&size)[3]) {
  return (at[0] * size[1] + at[1]) * size[2] + at[2];
}

inline int64_t Volume(const int64_t (&size)[3]) {
  return size[0] * size[1] * size[2];
}

// grad[k, c, o] += factor * sum over pixels of x[pixel of t and k, c] g[t, o]
// for one example; `scale`, if not null, gets the same of absolute values.
template <class Real, class T>
void ConvGrad(const ConvShape& s, const T* x, const T* g, Real factor,
              Real* grad, Real* scale = nullptr) {
  const int64_t outputs = s.groups * s.cout;
  for (int64_t k = 0; k < Volume(s.kernel); ++k) {
    for (int64_t pixel = 0; pixel < s.images * Volume(s.out); ++pixel) {
      const int64_t image = pixel / Volume(s.out);
      Position in;
      if (!InputPixel(s, PositionOf(pixel % Volume(s.out), s.out),
                      PositionOf(k, s.kernel), &in)) {
        continue;
      }
      const T* row =
          x + (image * Volume(s.in) + Flat(in, s.in)) * s.groups * s.cin;
      for (int64_t c = 0; c < s.cin; ++c) {
        for (int64_t o = 0; o < outputs; ++o) {
          const int64_t channel = o / s.cout * s.cin + c;
          const Real term = factor * static_cast<Real>(ToDouble(row[channel])) *
                            static_cast<Real>(ToDouble(g[pixel * outputs + o]));
          grad[(k * s.cin + c) * outputs + o] += term;
          if (scale != nullptr) {
            scale[(k * s.cin + c) * outputs + o] += std::fabs(term);
          }
        }
      }
    }
  }
}

}  // namespace bk::reference

#endif  // BK_JAX_CUSTOM_CALLS_REFERENCE_CONV_GRAD_H_
