#include "custom_calls/cpu/amx/amx_support.h"

#include <cerrno>
#include <cstring>
#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace bk {
#if defined(__x86_64__) && defined(__linux__)
namespace {

bool Bit(uint64_t word, int bit) { return ((word >> bit) & 1) != 0; }

struct Cpuid {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

// All zero if the CPU has no such leaf.
Cpuid ReadCpuid(unsigned leaf, unsigned subleaf) {
  Cpuid id;
  if (__get_cpuid_count(leaf, subleaf, &id.a, &id.b, &id.c, &id.d) == 0) {
    return {};
  }
  return id;
}

// XCR0, or 0 where the system does not let programs read it.
uint64_t ReadXcr0() {
  constexpr int kOsxsave = 27;
  if (!Bit(ReadCpuid(1, 0).c, kOsxsave)) return 0;
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

// Palette 1, leaf 0x1d: bytes of a tile, bytes of a row, number of tiles, rows.
// Some hypervisors hide that leaf; then the room for tiles in a saved state,
// leaf 0xd, says the same of the only palette that there is.
bool HasWholeTiles() {
  constexpr unsigned kTileDataBytes = 8 * 16 * 64;
  const Cpuid palette = ReadCpuid(0x1d, 1);
  if (palette.a == 0) return ReadCpuid(0xd, 18).a == kTileDataBytes;
  return palette.a >> 16 >= 1024 && (palette.b & 0xffff) >= 64 &&
         palette.b >> 16 >= 8 && (palette.c & 0xffff) >= 16;
}

}  // namespace

AmxFacts FindAmxFacts() {
  constexpr int kTile = 24, kBf16 = 22;            // leaf 7, EDX
  constexpr int kTileConfig = 17, kTileData = 18;  // XCR0
  constexpr int kRequestPermission = 0x1023;       // ARCH_REQ_XCOMP_PERM
  const uint64_t features = ReadCpuid(7, 0).d;
  const uint64_t saved = ReadXcr0();
  AmxFacts facts;
  facts.tile = Bit(features, kTile);
  facts.bf16 = Bit(features, kBf16);
  facts.saved = Bit(saved, kTileConfig) && Bit(saved, kTileData);
  facts.whole_tiles = facts.tile && HasWholeTiles();
  if (WhyNoAmx(facts).empty() &&
      syscall(SYS_arch_prctl, kRequestPermission, uint64_t{kTileData}) != 0) {
    facts.permission = errno;
  }
  return facts;
}
#else
AmxFacts FindAmxFacts() { return {}; }
#endif

std::string WhyNoAmx(const AmxFacts& facts) {
  if (!facts.tile) return "the CPU has no AMX-TILE";
  if (!facts.bf16) return "the CPU has no AMX-BF16";
  if (!facts.whole_tiles) return "the CPU's tiles are smaller than 16 x 64";
  if (!facts.saved) return "the operating system does not save tiles (XCR0)";
  if (facts.permission != 0) {
    return std::string("arch_prctl(ARCH_REQ_XCOMP_PERM): ") +
           std::strerror(facts.permission);
  }
  return "";
}

}  // namespace bk
