// Prints what the bounds of norms count for a chunk, for static_gates.py, which
// compares it with the compiled code.
#include <cstdio>

#include "tests/custom_calls/cuda/engine_probe.h"

namespace {

template <class T>
void Print(const char* name) {
  const bk::cuda::ChunkCounts counts = bk::cuda::CountsOfChunk<T>();
  std::printf("%s %ld %ld\n", name, static_cast<long>(counts.terms),
              static_cast<long>(counts.instructions));
}

}  // namespace

int main() {
  Print<bk::BFloat16>("bf16");
  Print<bk::Float16>("f16");
  Print<float>("tf32");
  return 0;
}
