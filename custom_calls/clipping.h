// The clipping functions: how a factor C follows from a norm n and a bound R.
#ifndef BK_JAX_CUSTOM_CALLS_CLIPPING_H_
#define BK_JAX_CUSTOM_CALLS_CLIPPING_H_

namespace bk {

enum class Clipping {
  kAbadi,      // min(R / n, 1)
  kAutomatic,  // R / (n + kAutomaticOffset)
  kNormalize,  // R / n
  kIndicator,  // 1 if n <= R, else 0
};

// The stability constant of automatic clipping in the paper.
inline constexpr double kAutomaticOffset = 0.01;

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CLIPPING_H_
