// What one task of a norm from Gram matrices gives.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_GRAM_PARTIAL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_GRAM_PARTIAL_H_

namespace bk {

// What some pairs of positions add to <a a^T, g g^T>, and what the positions
// among them that belong to this task add to S, the sum over positions t of a
// bound of |a_t| |g_t|.
struct GramPartial {
  double inner;
  double bound;
};

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_GRAM_PARTIAL_H_
