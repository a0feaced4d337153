// Runs a kernel on the CPU: blocks one after the other, the threads of a block
// as fibers that switch at barriers and at operations of a warp.
//
// A problem ends the launch, and with it the error that the launch returns:
//   threads wait at different barriers, or some have returned | divergence
//   an access that memory.h does not allow                    | see there
//   a first launch while launches are recorded              | not loaded
//   a vector or a wmma tile that does not start where a GPU
//   needs it to                                             | misaligned
//   lanes of a warp have done unequal numbers of wmma calls   | divergence
//   asynchronous copies, matrix instructions        | see instructions.h
// LastProblem() says what it was, with the source line of the barrier.
#ifndef BK_JAX_TESTS_CUDA_ON_CPU_EMULATOR_H_
#define BK_JAX_TESTS_CUDA_ON_CPU_EMULATOR_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/cuda_on_cpu/memory.h"

namespace bk::emulator {

inline constexpr int kWarpSize = 32;
inline constexpr int kMaxThreads = 1024;

// Where a barrier or an operation of a warp stands in the source.
struct Site {
  const char* file;
  int line;
};

// Calls kernel(closure) in `threads` threads of `blocks` blocks; false if there
// was a problem.
using Kernel = void (*)(const void* closure);
bool Run(int64_t blocks, int threads, Kernel kernel, const void* closure);

// The largest grid that a launch makes; tests make it small to see that
// kernels walk on to the rest of their items. 0: no limit.
void SetMaxBlocks(int64_t blocks);
int64_t MaxBlocks();

// A kernel, whatever its parameters are.
using KernelCode = void (*)();
// Kernels are loaded by Load() or by their first launch, unless XLA records
// launches into a command buffer: there only loaded ones may be launched.
void Load(KernelCode kernel);
void UnloadAll();
void SetRecording(bool recording);
bool MayLaunch(KernelCode kernel);

// Launches, and loads and stores of buffers, of the process so far.
int64_t Launches();
int64_t Accesses();

// What went wrong in the last launch that failed.
const std::string& LastProblem();

// Called by device code, through the functions of cuda_on_cpu.h.
void SyncThreads(Site site);
// __syncwarp: what lanes of `mask` did before comes before what they do after.
void SyncWarp(uint32_t mask, Site site);
// Waits for the lanes of `mask`; returns what they brought, by lane. As on a
// GPU, this orders no accesses to memory.
struct Payload {
  uint64_t words[4];
};
const Payload* ExchangeInWarp(uint32_t mask, const Payload& mine, Site site);
// Counts an operation that all lanes of a warp have to make together.
void NoteWarpOperation();
int Lane();
// fence.proxy.async: of the running thread, and how many a thread has made.
void NoteProxyFence();
uint32_t ProxyFencesOf(uint32_t thread);
Moment Now();
// " (thread .. of block ..)"
std::string WhoRuns();
// `code`: the instruction, if accesses of the lanes belong together by it.
void CheckAccess(const void* address, size_t bytes, Access access,
                 const void* code = nullptr);
// Ends the launch unless the address is a multiple of `bytes`; `what` is there.
void CheckAligned(const void* address, size_t bytes, const char* what);
// Ends the launch with this problem.
[[noreturn]] void Abandon(const std::string& problem);

}  // namespace bk::emulator

#endif  // BK_JAX_TESTS_CUDA_ON_CPU_EMULATOR_H_
