// cp.async on the CPU: a thread starts copies of 4, 8 or 16 bytes from global
// to shared memory, closes a group of them, and waits for groups. The bytes
// arrive when their thread waits for them, and no earlier: see AsyncCopy in
// memory.h for what may happen to them before.
//
//   source or destination not a multiple of the size | "misaligned"
//   a destination outside of the shared memory       | "cp.async"
//   copies that nobody waited for                    | "never waited for"
#ifndef BK_JAX_TESTS_CUDA_ON_CPU_ASYNC_COPY_H_
#define BK_JAX_TESTS_CUDA_ON_CPU_ASYNC_COPY_H_

#include <cstddef>
#include <string>

#include "tests/cuda_on_cpu/memory.h"

namespace bk::emulator {

// cp.async with the running thread's addresses: `bytes` is 4, 8 or 16, of which
// the first `from_bytes` are read and the others become zero.
void CopyAsync(void* to, const void* from, size_t bytes, size_t from_bytes);
// cp.async.commit_group: a group may be empty.
void CommitCopies();
// cp.async.wait_group: all but the last `groups` groups have arrived.
void WaitForCopies(int groups);
// cp.async.wait_all: whether in a group or not.
void WaitForAllCopies();

// For the emulator: before a block, and at its end, empty or what is left.
void ForgetCopies();
std::string UnfinishedCopies();

}  // namespace bk::emulator

#endif  // BK_JAX_TESTS_CUDA_ON_CPU_ASYNC_COPY_H_
