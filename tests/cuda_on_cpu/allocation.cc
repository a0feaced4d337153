#include "tests/cuda_on_cpu/allocation.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "tests/cuda_on_cpu/memory.h"

namespace bk::emulator {
namespace {

constexpr size_t kMargin = 4096;

std::map<void*, std::unique_ptr<char[]>>& Blocks() {
  static auto* blocks = new std::map<void*, std::unique_ptr<char[]>>();
  return *blocks;
}

}  // namespace

void* Allocate(size_t bytes, const std::string& name) {
  auto block = std::make_unique<char[]>(bytes + 3 * kMargin);
  const auto begin = reinterpret_cast<uintptr_t>(block.get());
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  auto* memory = reinterpret_cast<char*>((begin / kMargin + 2) * kMargin);
  std::memset(memory, 0xff, bytes);
  Register(memory, bytes, name);
  Blocks()[memory] = std::move(block);
  return memory;
}

void Release(void* memory) {
  Forget(memory);
  Blocks().erase(memory);
}

}  // namespace bk::emulator
