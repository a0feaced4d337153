// Element types to and from double, one value at a time.
#ifndef BK_JAX_CUSTOM_CALLS_REFERENCE_CONVERT_H_
#define BK_JAX_CUSTOM_CALLS_REFERENCE_CONVERT_H_

#include "custom_calls/element.h"

namespace bk::reference {

inline double ToDouble(double x) { return x; }
inline double ToDouble(float x) { return static_cast<double>(x); }
double ToDouble(BFloat16 x);
double ToDouble(Float16 x);

// Rounds to nearest, ties to even; NaN and infinities keep their kind.
template <class T>
T FromDouble(double x);

}  // namespace bk::reference

#endif  // BK_JAX_CUSTOM_CALLS_REFERENCE_CONVERT_H_
