#include "tests/cuda_on_cpu/memory.h"

#include <cstring>
#include <map>
#include <sstream>
#include <vector>

#include "tests/cuda_on_cpu/emulator.h"

namespace bk::emulator {
namespace {

constexpr uint32_t kWarpThreads = 32;
constexpr uintptr_t kGranule = 2;
// The alignment that kernels may ask for: patterns of swizzled tiles repeat
// after 1024 bytes.
constexpr uintptr_t kSharedAlignment = 1024;

// The last write and the last read of a granule.
struct Cell {
  Moment write, read;
  bool written = false, seen = false;
  bool seen_by_others = false;  // several warps read since the last barrier
  // Asynchronous copies that are under way in this launch.
  bool copy_to = false;
  uint16_t copies_from = 0;
  uint32_t copy_launch = 0;
};

struct Region {
  uintptr_t begin = 0;
  size_t bytes = 0;
  std::string name;
  bool shared = false;
  std::vector<Cell> cells;
};

std::map<uintptr_t, Region>& Regions() {
  static auto* regions = new std::map<uintptr_t, Region>();
  return *regions;
}

Region shared_region;
std::vector<double> shared_bytes;
Region* last_region = nullptr;
size_t asked_for = 0;  // dynamic shared memory of a launch

Region* Find(uintptr_t address) {
  if (last_region != nullptr &&
      address - last_region->begin < last_region->bytes) {
    return last_region;
  }
  if (address - shared_region.begin < shared_region.bytes) {
    return &shared_region;
  }
  auto& regions = Regions();
  auto next = regions.upper_bound(address);
  if (next == regions.begin()) return nullptr;
  Region& region = std::prev(next)->second;
  if (address - region.begin >= region.bytes) return nullptr;
  last_region = &region;
  return &region;
}

// Whether two accesses of different threads may happen in any order.
bool Unordered(const Moment& x, const Moment& y, bool shared) {
  if (x.launch != y.launch) return false;
  if (x.block != y.block) return !shared;
  if (x.thread == y.thread) return false;
  if (x.block_barriers != y.block_barriers) return false;
  return x.thread / kWarpThreads != y.thread / kWarpThreads ||
         x.warp_barriers == y.warp_barriers;
}

std::string Describe(const Region& region, uintptr_t address) {
  std::ostringstream text;
  text << region.name << " + " << address - region.begin << " of "
       << region.bytes << " bytes";
  return text.str();
}

std::string Race(const Region& region, uintptr_t address, const char* what,
                 const Moment& before, const Moment& now) {
  std::ostringstream text;
  text << "race: " << what << " at " << Describe(region, address) << ", thread "
       << before.thread << " of block " << before.block << ", then thread "
       << now.thread << " of block " << now.block
       << ", without a barrier between";
  return text.str();
}

bool SameInterval(const Moment& x, const Moment& y) {
  return x.launch == y.launch && x.block == y.block &&
         x.block_barriers == y.block_barriers;
}

void NoteRead(Cell& cell, const Moment& now) {
  const bool other_warp =
      cell.seen && SameInterval(cell.read, now) &&
      cell.read.thread / kWarpThreads != now.thread / kWarpThreads;
  const bool other_block = cell.seen && cell.read.launch == now.launch &&
                           cell.read.block != now.block;
  const bool keep = cell.seen_by_others && cell.read.launch == now.launch &&
                    (SameInterval(cell.read, now) || other_block);
  cell.seen_by_others = keep || other_warp || other_block;
  cell.read = now;
  cell.seen = true;
}

enum class Verdict {
  kFine,
  kNeverWritten,
  kWriteRead,
  kTwoWrites,
  kReadWrite,
  kReadTooEarly,
  kWriteUnderCopy,
  kSourceWritten,
};

Verdict CheckCopies(const Cell& cell, Access access, const Moment& now) {
  if (cell.copy_launch != now.launch) return Verdict::kFine;
  const bool reads = access == Access::kRead;
  if (cell.copy_to) {
    return reads ? Verdict::kReadTooEarly : Verdict::kWriteUnderCopy;
  }
  const bool source = cell.copies_from > 0 && !reads;
  return source ? Verdict::kSourceWritten : Verdict::kFine;
}

Cell& CellAt(Region& region, uintptr_t address) {
  return region.cells[(address - region.begin) / kGranule];
}

Verdict CheckCell(Region& region, uintptr_t address, Access access,
                  const Moment& now) {
  Cell& cell = CellAt(region, address);
  const Verdict copies = CheckCopies(cell, access, now);
  if (copies != Verdict::kFine) return copies;
  if (region.shared && access == Access::kRead &&
      !(cell.written && cell.write.block == now.block &&
        cell.write.launch == now.launch)) {
    return Verdict::kNeverWritten;
  }
  if (cell.written && Unordered(cell.write, now, region.shared)) {
    return access == Access::kRead ? Verdict::kWriteRead : Verdict::kTwoWrites;
  }
  if (access == Access::kRead) {
    NoteRead(cell, now);
    return Verdict::kFine;
  }
  const bool by_other_blocks = cell.read.launch == now.launch &&
                               !region.shared && cell.read.block != now.block;
  if (cell.seen && (Unordered(cell.read, now, region.shared) ||
                    (cell.seen_by_others &&
                     (by_other_blocks || SameInterval(cell.read, now))))) {
    return Verdict::kReadWrite;
  }
  cell.write = now;
  cell.written = true;
  return Verdict::kFine;
}

std::string TextOf(Verdict verdict, Region& region, uintptr_t address,
                   const Moment& now) {
  const Cell& cell = CellAt(region, address);
  switch (verdict) {
    case Verdict::kNeverWritten:
      return "never written: " + Describe(region, address);
    case Verdict::kWriteRead:
      return Race(region, address, "write and read", cell.write, now);
    case Verdict::kTwoWrites:
      return Race(region, address, "two writes", cell.write, now);
    case Verdict::kReadTooEarly:
      return "a copy is pending: read of " + Describe(region, address) +
             ", which an asynchronous copy will write; its thread has not "
             "waited for it";
    case Verdict::kWriteUnderCopy:
      return "a copy is pending: write to " + Describe(region, address) +
             ", which an asynchronous copy will write as well";
    case Verdict::kSourceWritten:
      return "a copy is pending: write to " + Describe(region, address) +
             ", which an asynchronous copy or product reads";
    default:
      return Race(region, address, "read and write", cell.read, now);
  }
}

}  // namespace

void Register(const void* begin, size_t bytes, const std::string& name) {
  const auto address = reinterpret_cast<uintptr_t>(begin);
  Region region = {address, bytes, name, false,
                   std::vector<Cell>(bytes / kGranule + 1)};
  Regions()[address] = std::move(region);
  last_region = nullptr;
}

void Forget(const void* begin) {
  Regions().erase(reinterpret_cast<uintptr_t>(begin));
  last_region = nullptr;
}

void ResetShared() {
  if (shared_bytes.empty()) {
    shared_bytes.resize((kDynamicSharedLimit + kSharedAlignment) /
                        sizeof(double));
    std::memset(shared_bytes.data(), 0xff,
                shared_bytes.size() * sizeof(double));
    const auto begin = reinterpret_cast<uintptr_t>(shared_bytes.data());
    shared_region.begin =
        (begin + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
    shared_region.name = "shared memory";
    shared_region.shared = true;
    shared_region.cells.resize(kDynamicSharedLimit / kGranule + 1);
  }
  std::memset(SharedBase(), 0xff, shared_region.bytes);
  shared_region.bytes = 0;
}

char* SharedOf(size_t bytes) {
  shared_region.bytes = bytes;
  return SharedBase();
}

void AskForShared(size_t bytes) { asked_for = bytes; }

char* DynamicSharedOf(size_t bytes) {
  if (bytes > asked_for) {
    Abandon("shared memory: a kernel has " + std::to_string(bytes) +
            " bytes, and was launched with " + std::to_string(asked_for));
  }
  return SharedOf(bytes);
}

char* SharedBase() {
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return reinterpret_cast<char*>(shared_region.begin);
}

std::string Check(const void* pointer, size_t bytes, Access access,
                  const Moment& now) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  Region* region = Find(address);
  if (region == nullptr) {
    std::ostringstream text;
    text << "out of bounds: " << bytes << " bytes at " << pointer
         << ", which is in no buffer";
    return text.str();
  }
  if (address + bytes > region->begin + region->bytes) {
    return "out of bounds: " + Describe(*region, address);
  }
  if (access == Access::kAtomic || bytes < kGranule) return "";
  for (size_t offset = 0; offset < bytes; offset += kGranule) {
    const Verdict verdict = CheckCell(*region, address + offset, access, now);
    if (verdict != Verdict::kFine) {
      return TextOf(verdict, *region, address + offset, now);
    }
  }
  return "";
}

int64_t SharedOffset(const void* address) {
  const auto offset =
      reinterpret_cast<uintptr_t>(address) - shared_region.begin;
  return offset < shared_region.bytes ? static_cast<int64_t>(offset) : -1;
}

namespace {

template <class Change>
void ForCells(const void* pointer, size_t bytes, const Change& change) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  Region* region = bytes == 0 ? nullptr : Find(address);
  for (size_t offset = 0; offset < bytes; offset += kGranule) {
    change(CellAt(*region, address + offset));
  }
}

void Renew(Cell& cell, const Moment& now) {
  if (cell.copy_launch == now.launch) return;
  cell.copy_launch = now.launch;
  cell.copy_to = false;
  cell.copies_from = 0;
}

}  // namespace

std::string BeginCopy(const AsyncCopy& copy, const Moment& now) {
  std::string problem;
  if (copy.from_bytes > 0) {
    problem = Check(copy.from, copy.from_bytes, Access::kRead, now);
  }
  if (problem.empty()) {
    problem = Check(copy.to, copy.bytes, Access::kWrite, now);
  }
  if (!problem.empty()) return problem;
  ForCells(copy.to, copy.bytes, [&](Cell& cell) {
    Renew(cell, now);
    cell.copy_to = true;
  });
  ForCells(copy.from, copy.from_bytes, [&](Cell& cell) {
    Renew(cell, now);
    ++cell.copies_from;
  });
  return "";
}

std::string EndCopy(const AsyncCopy& copy, const Moment& now) {
  ForCells(copy.to, copy.bytes, [&](Cell& cell) {
    cell.copy_to = false;
    cell.write = now;
  });
  ForCells(copy.from, copy.from_bytes, [](Cell& cell) { --cell.copies_from; });
  std::memcpy(copy.to, copy.from, copy.from_bytes);
  std::memset(copy.to + copy.from_bytes, 0, copy.bytes - copy.from_bytes);
  if (copy.from_bytes == 0) return "";
  return Check(copy.from, copy.from_bytes, Access::kRead, now);
}

std::string BeginAsyncRead(const void* address, size_t bytes,
                           const Moment& now) {
  if (SharedOffset(address) < 0) {
    return "out of bounds: an operand of wgmma outside of shared memory";
  }
  std::string problem = Check(address, bytes, Access::kRead, now);
  if (!problem.empty()) return problem;
  ForCells(address, bytes, [&](Cell& cell) {
    Renew(cell, now);
    ++cell.copies_from;
    if (cell.write.proxy_fences >= ProxyFencesOf(cell.write.thread)) {
      problem = "no proxy fence: an operand of wgmma at " +
                Describe(shared_region, reinterpret_cast<uintptr_t>(address)) +
                ", which thread " + std::to_string(cell.write.thread) +
                " wrote without fence.proxy.async after it";
    }
  });
  return problem;
}

std::string EndAsyncRead(const void* address, size_t bytes, const Moment& now) {
  ForCells(address, bytes, [](Cell& cell) { --cell.copies_from; });
  return Check(address, bytes, Access::kRead, now);
}

}  // namespace bk::emulator
