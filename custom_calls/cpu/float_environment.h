// XLA runs handlers with denormals flushed to zero. The error bounds here count
// on gradual underflow and on rounding to nearest, so every task sets both and
// puts the caller's state back.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_FLOAT_ENVIRONMENT_H_
#define BK_JAX_CUSTOM_CALLS_CPU_FLOAT_ENVIRONMENT_H_

#include <cstdint>

namespace bk {

class ScopedFloatEnvironment {
 public:
#if defined(__x86_64__)
  ScopedFloatEnvironment() : saved_(__builtin_ia32_stmxcsr()) {
    __builtin_ia32_ldmxcsr(kMaskedNearestGradual);
  }
  ~ScopedFloatEnvironment() { __builtin_ia32_ldmxcsr(saved_); }
#elif defined(__aarch64__)
  ScopedFloatEnvironment() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(uint64_t{0}) : "memory");
  }
  ~ScopedFloatEnvironment() {
    asm volatile("msr fpcr, %0" : : "r"(saved_) : "memory");
  }
#else
  ScopedFloatEnvironment() = default;
#endif
  ScopedFloatEnvironment(const ScopedFloatEnvironment&) = delete;
  ScopedFloatEnvironment& operator=(const ScopedFloatEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  // All exceptions masked, round to nearest, no flush-to-zero, no
  // denormals-are-zero: the state in which a process starts.
  static constexpr uint32_t kMaskedNearestGradual = 0x1f80;
  uint32_t saved_;
#elif defined(__aarch64__)
  uint64_t saved_;
#endif
};

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_FLOAT_ENVIRONMENT_H_
