// Packing buffers of a thread, kept between calls: getting pages from the
// operating system for every task would cost more than small tasks do.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_SCRATCH_H_
#define BK_JAX_CUSTOM_CALLS_CPU_SCRATCH_H_

#include <cstdint>

namespace bk {

// At least `bytes` bytes, aligned to kScratchAlignment, uninitialised, valid
// until the next call on the same thread. Throws std::bad_alloc.
void* ThreadScratch(int64_t bytes);

template <class Element>
Element* ThreadScratchOf(int64_t count) {
  return static_cast<Element*>(
      ThreadScratch(count * static_cast<int64_t>(sizeof(Element))));
}

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_SCRATCH_H_
