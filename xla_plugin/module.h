// What the Python modules of all platforms have.
#ifndef BK_JAX_XLA_PLUGIN_MODULE_H_
#define BK_JAX_XLA_PLUGIN_MODULE_H_

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include <string>
#include <utility>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace bk {

// Handlers by the stage of XLA that calls them.
using Stages = std::vector<std::pair<const char*, XLA_FFI_Handler*>>;

// `targets` maps names to structures, `stages` those to their handlers.
template <class Targets, class StagesOf>
void DefineTargets(nanobind::module_& module, const Targets& targets,
                   StagesOf stages) {
  namespace nb = nanobind;
  module.def(
      "registrations",
      [&targets, stages] {
        nb::dict registrations;
        for (const auto& [name, target] : targets) {
          nb::dict capsules;
          for (const auto& [stage, handler] : Stages(stages(target))) {
            capsules[stage] = nb::capsule(reinterpret_cast<void*>(handler));
          }
          registrations[nb::str(name.data(), name.size())] = capsules;
        }
        return registrations;
      },
      "Target names and the capsules that jax.ffi registers, by stage.");
  module.def(
      "ffi_api_version",
      [] { return std::pair(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR); },
      "(major, minor) of the XLA FFI headers this module was built with.");
}

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_MODULE_H_
