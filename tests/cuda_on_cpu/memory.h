// Who may touch which byte: bounds of buffers, and races between barriers.
//
// Device sources are compiled with -fsanitize=thread, which calls a function
// before every load and store, and are linked with memory.cc instead of the
// sanitizer's library: so every access of a kernel is seen here.
//
//   outside of every registered buffer          | "out of bounds"
//   shared memory that no thread has written    | "never written"
//   two threads, one writes, no barrier between | "race"
//   two blocks of one launch, one writes        | "race"
//   an access to bytes that an asynchronous copy
//   will write, a write to bytes that one reads | "a copy is pending"
//
// The granule is two bytes; accesses of one byte are checked for bounds only.
#ifndef BK_JAX_TESTS_CUDA_ON_CPU_MEMORY_H_
#define BK_JAX_TESTS_CUDA_ON_CPU_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace bk::emulator {

// Where an access stands in the order of a launch.
struct Moment {
  uint32_t launch = 0;
  uint32_t block = 0;
  uint32_t thread = 0;
  uint32_t block_barriers = 0;  // barriers of the block so far
  uint32_t warp_barriers = 0;   // of the thread's warp
  uint32_t proxy_fences = 0;    // fence.proxy.async of the thread
};

enum class Access { kRead, kWrite, kAtomic };

// Global memory: known from now on as the buffer `name`, until forgotten.
void Register(const void* begin, size_t bytes, const std::string& name);
void Forget(const void* begin);

// The most shared memory that a block may declare without asking for more.
inline constexpr size_t kSharedLimit = size_t{48} * 1024;
// The most that every GPU from 8.0 gives to a launch that asks for it.
inline constexpr size_t kDynamicSharedLimit = size_t{99} * 1024;

// Fills the shared memory with a pattern that is a NaN in every format: blocks
// run one after the other and have it in turn.
void ResetShared();
// The shared memory, of which the running block uses `bytes`.
char* SharedOf(size_t bytes);
// The same with what the launch has asked for, which must be enough.
void AskForShared(size_t bytes);
char* DynamicSharedOf(size_t bytes);
// Where it begins: address 0 for instructions that take shared addresses.
char* SharedBase();

// Empty, or what is wrong with this access.
std::string Check(const void* address, size_t bytes, Access access,
                  const Moment& now);

// Where `address` lies in the shared memory; -1 if it lies elsewhere.
int64_t SharedOffset(const void* address);

// A copy from global to shared memory that goes on by itself: from the first
// call to the second nobody may touch `to`, nor write to `from`. The bytes
// arrive in the second call, as a write of the thread that waits for them.
struct AsyncCopy {
  char* to;
  const char* from;
  size_t bytes;
  size_t from_bytes;  // zeros follow
};
std::string BeginCopy(const AsyncCopy& copy, const Moment& now);
std::string EndCopy(const AsyncCopy& copy, const Moment& now);

// A read of shared memory by a tensor core that goes on by itself: from the
// first call to the second nobody may write there. What it reads must have been
// followed by a fence.proxy.async of the thread that wrote it.
std::string BeginAsyncRead(const void* address, size_t bytes,
                           const Moment& now);
std::string EndAsyncRead(const void* address, size_t bytes, const Moment& now);

}  // namespace bk::emulator

#endif  // BK_JAX_TESTS_CUDA_ON_CPU_MEMORY_H_
