// Cooperative threads: each has a stack, one runs at a time, and they switch
// only where they ask to.
#ifndef BK_JAX_TESTS_CUDA_ON_CPU_FIBER_H_
#define BK_JAX_TESTS_CUDA_ON_CPU_FIBER_H_

#include <cstddef>
#include <cstdint>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace bk::emulator {

// Something that can be switched to: a fiber, or the one who started fibers.
struct Context {
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t state;
#endif
};

// Prepares `context` so that switching to it calls entry() on the given stack.
// `entry` must never return: it switches away at its end.
void Prepare(Context* context, char* stack, size_t size, void (*entry)());

// Saves the running context in `from` and goes on with `to`.
void Switch(Context* from, Context* to);

}  // namespace bk::emulator

#endif  // BK_JAX_TESTS_CUDA_ON_CPU_FIBER_H_
