// Buffers of an emulated device.
#ifndef BK_JAX_TESTS_CUDA_ON_CPU_ALLOCATION_H_
#define BK_JAX_TESTS_CUDA_ON_CPU_ALLOCATION_H_

#include <cstddef>
#include <string>

namespace bk::emulator {

// A buffer that Check() knows as `name`, filled with NaN, as nobody may count
// on zeros. Around it is room, so that no small step leads into another one.
void* Allocate(size_t bytes, const std::string& name);
void Release(void* memory);

}  // namespace bk::emulator

#endif  // BK_JAX_TESTS_CUDA_ON_CPU_ALLOCATION_H_
