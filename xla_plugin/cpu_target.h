// From an operation to a handler for CPUs. See operation.h.
#ifndef BK_JAX_XLA_PLUGIN_CPU_TARGET_H_
#define BK_JAX_XLA_PLUGIN_CPU_TARGET_H_

#include <cstring>
#include <map>
#include <string_view>

#include "custom_calls/cpu/isa/dispatch.h"
#include "custom_calls/parallel.h"
#include "xla/ffi/api/ffi.h"
#include "xla_plugin/call.h"
#include "xla_plugin/ffi_frame.h"
#include "xla_plugin/parallel_for.h"
#include "xla_plugin/status.h"

namespace bk {

// What kernels run with.
struct Cpu {
  const CpuKernels& kernels;
  Parallel& parallel;

  // The caller asks for one buffer; without that the sum starts as a copy.
  void StartFrom(const Buffer& initial, const Buffer& sum) const {
    if (initial.data == sum.data || sum.Bytes() == 0) return;
    std::memcpy(sum.data, initial.data, sum.Bytes());
  }
};

struct CpuTarget {
  XLA_FFI_Handler* handler;
  Status (*run)(const CallFrame& frame, const Cpu& cpu);
};

// All operations that are linked in, by name.
std::map<std::string_view, CpuTarget>& CpuTargets();

template <class Operation>
Status RunOnCpu(const CallFrame& frame, const Cpu& cpu) {
  Operation operation(Operation::kName, frame);
  BK_RETURN_IF_ERROR(operation.CheckCounts());
  BK_RETURN_IF_ERROR(operation.Check());
  return ForType(typename Operation::Types(), operation.Typed(), [&](auto tag) {
    operation.template OnCpu<typename decltype(tag)::Type>(cpu);
    return OkStatus();
  });
}

template <class Operation>
ffi::Error HandleOnCpu(ffi::ThreadPool pool, ffi::RemainingArgs operands,
                       ffi::RemainingRets results, ffi::Dictionary dictionary) {
  return Guarded(Operation::kName, [&] {
    const FfiAttributes attributes(dictionary);
    FfiScheduler scheduler(pool);
    ParallelFor parallel(scheduler);
    return RunOnCpu<Operation>(FfiFrame(operands, results, attributes),
                               {*ActiveKernels().kernels, parallel});
  });
}

// A global object of this type enters an operation.
template <class Operation>
struct CpuRegistration {
  CpuRegistration() {
    XLA_FFI_DEFINE_HANDLER(handler, HandleOnCpu<Operation>,
                           ffi::Ffi::Bind()
                               .Ctx<ffi::ThreadPool>()
                               .RemainingArgs()
                               .RemainingRets()
                               .Attrs());
    CpuTargets()[Operation::kName] = {handler, RunOnCpu<Operation>};
  }
};

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_CPU_TARGET_H_
