// Whether this process may use AMX.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_AMX_AMX_SUPPORT_H_
#define BK_JAX_CUSTOM_CALLS_CPU_AMX_AMX_SUPPORT_H_

#include <cstdint>
#include <string>

namespace bk {

// What CPU and operating system say.
struct AmxFacts {
  bool tile = false;         // CPUID: AMX-TILE
  bool bf16 = false;         // CPUID: AMX-BF16
  bool whole_tiles = false;  // CPUID: eight tiles of 16 rows of 64 bytes
  bool saved = false;        // XCR0: the system saves tiles and their shapes
  int permission = 0;  // of arch_prctl(ARCH_REQ_XCOMP_PERM): 0, or an errno
};

// Asks for the permission if everything else is there; once per process is
// enough, and it holds for all threads.
AmxFacts FindAmxFacts();

// Empty, or the first thing that is missing.
std::string WhyNoAmx(const AmxFacts& facts);

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_AMX_AMX_SUPPORT_H_
