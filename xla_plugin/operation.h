// What a file of ops/ includes. It holds one operation, or a few of one kind,
// and is compiled twice: with BK_PLATFORM_CUDA for GPUs, without for CPUs.
//
//   struct GhostNormCall : Call {
//     static constexpr char kName[] = "bk_ghost_norm";  // of the target
//     using Call::Call;
//     Buffer a = Operand("a"), ...;        // the signature, see call.h
//     Status Check();                // all that memory safety rests on
//     const Buffer& Typed() const;         // the one whose elements are T
//     using Types = Floats;                // what T may be; this is the
//     default
//
//     template <class T> void OnCpu(const Cpu&);            // for CPUs
//
//     template <class T> Status OnCuda(const Gpu&);   // for GPUs
//     int64_t WorkspaceBytes() const;                       // if it needs one
//   };
//   const Registration<GhostNormCall> kRegistration;
//
// Check() keeps what it finds out, such as sizes, in members.
#ifndef BK_JAX_XLA_PLUGIN_OPERATION_H_
#define BK_JAX_XLA_PLUGIN_OPERATION_H_

#include "xla_plugin/call.h"

#if defined(BK_PLATFORM_CUDA)
#include "xla_plugin/cuda_target.h"
#else
#include "xla_plugin/cpu_target.h"
#endif

namespace bk {

#if defined(BK_PLATFORM_CUDA)
template <class Operation>
using Registration = CudaRegistration<Operation>;
#else
template <class Operation>
using Registration = CpuRegistration<Operation>;
#endif

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_OPERATION_H_
