#include "xla_plugin/cpu_target.h"

namespace bk {

std::map<std::string_view, CpuTarget>& CpuTargets() {
  static auto* const targets = new std::map<std::string_view, CpuTarget>();
  return *targets;
}

}  // namespace bk
