// XLA runs handlers with denormals flushed to zero. The error bounds here count
// on gradual underflow and on rounding to nearest, so every task sets both and
// puts the caller's state back. What XLA's own code would compute otherwise
// asks for its underflow.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_FLOAT_ENVIRONMENT_H_
#define BK_JAX_CUSTOM_CALLS_CPU_FLOAT_ENVIRONMENT_H_

#include <cstdint>

namespace bk {

enum class Underflow { kGradual, kToZero };

class ScopedFloatEnvironment {
 public:
#if defined(__x86_64__)
  explicit ScopedFloatEnvironment(Underflow underflow = Underflow::kGradual)
      : saved_(__builtin_ia32_stmxcsr()) {
    __builtin_ia32_ldmxcsr(underflow == Underflow::kGradual
                               ? kMaskedNearestGradual
                               : kMaskedNearestGradual | kToZero);
  }
  ~ScopedFloatEnvironment() { __builtin_ia32_ldmxcsr(saved_); }
#elif defined(__aarch64__)
  explicit ScopedFloatEnvironment(Underflow underflow = Underflow::kGradual) {
    const uint64_t wanted = underflow == Underflow::kGradual ? 0 : kToZero;
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(wanted) : "memory");
  }
  ~ScopedFloatEnvironment() {
    asm volatile("msr fpcr, %0" : : "r"(saved_) : "memory");
  }
#else
  explicit ScopedFloatEnvironment(
      Underflow /*underflow*/ = Underflow::kGradual) {}
#endif
  ScopedFloatEnvironment(const ScopedFloatEnvironment&) = delete;
  ScopedFloatEnvironment& operator=(const ScopedFloatEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  // All exceptions masked, round to nearest, no flush-to-zero, no
  // denormals-are-zero: the state in which a process starts.
  static constexpr uint32_t kMaskedNearestGradual = 0x1f80;
  static constexpr uint32_t kToZero = 0x8040;  // results and operands
  uint32_t saved_;
#elif defined(__aarch64__)
  static constexpr uint64_t kToZero = uint64_t{1} << 24;
  uint64_t saved_;
#endif
};

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_FLOAT_ENVIRONMENT_H_
