// Element types of the kernels and the type in which each accumulates.
#ifndef BK_JAX_CUSTOM_CALLS_ELEMENT_H_
#define BK_JAX_CUSTOM_CALLS_ELEMENT_H_

#include <cstdint>

namespace bk {

// Storage of the 16-bit formats. Kernels convert to float while loading, so
// no arithmetic is defined here.
struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

// Products of two bf16 or two f16 values are exact in float.
template <class T>
struct AccumulatorOf {
  using Type = float;
};
template <>
struct AccumulatorOf<double> {
  using Type = double;
};
template <class T>
using Accumulator = typename AccumulatorOf<T>::Type;

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_ELEMENT_H_
