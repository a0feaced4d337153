// Runs the instructions of AMX that the kernels use on a CPU without them: such
// an instruction ends in a signal, whose handler does what the instruction
// would have done and goes on behind it.
#ifndef BK_JAX_TESTS_CUSTOM_CALLS_AMX_EMULATOR_H_
#define BK_JAX_TESTS_CUSTOM_CALLS_AMX_EMULATOR_H_

#include <cstdint>

namespace bk {

// Instructions that were emulated on this thread, by kind.
struct AmxCounts {
  int64_t configure, release, zero, load, store, dot;
};

// Emulates from now on, in the whole process. Other illegal instructions end
// the process, as always.
void EmulateAmx();

// Of this thread. Counts start again at 0.
AmxCounts TakeAmxCounts();

// Whether this thread's tiles are configured.
bool AmxIsConfigured();

}  // namespace bk

#endif  // BK_JAX_TESTS_CUSTOM_CALLS_AMX_EMULATOR_H_
