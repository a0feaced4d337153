#include "custom_calls/cpu/isa/dispatch.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "custom_calls/cpu/amx/amx_support.h"

namespace bk {
namespace {

struct Supported {
  std::vector<const CpuKernels*> tables = {&kBaselineKernels};
  std::string why_no_amx = "the CPU has no AMX-TILE";
};

#if defined(__x86_64__)
#if defined(BK_JAX_AVX512_ON_AVX2)
bool HasAvx512() { return true; }
bool HasPairs() { return true; }
std::string WhyNoTiles() { return ""; }
#else
bool HasAvx512() {
  return __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
bool HasPairs() { return __builtin_cpu_supports("avx512bf16"); }
std::string WhyNoTiles() { return WhyNoAmx(FindAmxFacts()); }
#endif

// AVX-512 with and without VDPBF16PS, the better one last. Zen 4 makes twice as
// many products by it as by FMA, Emerald Rapids half as many (measured).
void AddAvx512(std::vector<const CpuKernels*>& tables) {
  static const CpuKernels pairs =
      WithTiles("avx512bf16", kAvx512Kernels, kAvx512Bf16Kernels);
  const bool preferred = __builtin_cpu_is("amd");
  if (HasPairs() && !preferred) tables.push_back(&pairs);
  tables.push_back(&kAvx512Kernels);
  if (HasPairs() && preferred) tables.push_back(&pairs);
}

// The builtins also ask whether the operating system saves the registers.
Supported FindSupported() {
  Supported supported;
  __builtin_cpu_init();
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && HasAvx512();
  supported.why_no_amx = avx512 ? WhyNoTiles() : "the CPU has no AVX-512";
  if (avx2) supported.tables.push_back(&kAvx2Kernels);
  if (avx512) AddAvx512(supported.tables);
  if (supported.why_no_amx.empty()) {
    static const CpuKernels amx = WithTiles("amx", kAvx512Kernels, kAmxKernels);
    supported.tables.push_back(&amx);
  }
  return supported;
}
#else
Supported FindSupported() { return {}; }
#endif

const Supported& SupportedHere() {
  static const auto* supported = new Supported(FindSupported());
  return *supported;
}

std::string Names(const std::vector<const CpuKernels*>& tables) {
  std::string names;
  for (const CpuKernels* table : tables) {
    if (!names.empty()) names += ", ";
    names += table->name;
  }
  return names;
}

}  // namespace

CpuKernels WithTiles(const char* name, const CpuKernels& base,
                     const TileKernels& tiles) {
  CpuKernels table = base;
  table.name = name;
  table.bf16.ghost_tile_row = tiles.ghost_tile_row;
  table.bf16.spread = tiles.spread;
  table.bf16.clipped_gemm_tile = tiles.clipped_gemm_tile;
  table.bf16.product_tile = tiles.product_tile;
  table.bf16.tiles = true;
  return table;
}

const std::vector<const CpuKernels*>& SupportedKernels() {
  return SupportedHere().tables;
}

KernelChoice ChooseKernels(const char* request,
                           const std::vector<const CpuKernels*>& supported,
                           const std::string& why_no_amx) {
  const CpuKernels* best = supported.back();
  const std::string name = request == nullptr ? "" : request;
  if (name.empty()) return {best, ""};
  for (const CpuKernels* table : supported) {
    if (name == table->name) return {table, ""};
  }
  const bool explain = name == "amx" && !why_no_amx.empty();
  return {best, "BK_JAX_ISA=" + name + " is not available here (" +
                    Names(supported) + ")" +
                    (explain ? ", as " + why_no_amx : "") + ": using " +
                    best->name};
}

const KernelChoice& ActiveKernels() {
  static const auto* choice = new KernelChoice(
      ChooseKernels(std::getenv("BK_JAX_ISA"), SupportedKernels(),
                    SupportedHere().why_no_amx));
  return *choice;
}

}  // namespace bk
