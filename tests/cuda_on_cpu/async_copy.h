// What the emulator has to know of asynchronous copies; instructions.h has
// what device code calls.
#ifndef BK_JAX_TESTS_CUDA_ON_CPU_ASYNC_COPY_H_
#define BK_JAX_TESTS_CUDA_ON_CPU_ASYNC_COPY_H_

#include <string>

namespace bk::emulator {

// Before a block: no copy is under way.
void ForgetCopies();
// At its end: empty, or which copies nobody has waited for.
std::string UnfinishedCopies();

}  // namespace bk::emulator

#endif  // BK_JAX_TESTS_CUDA_ON_CPU_ASYNC_COPY_H_
