#include "tests/cuda_on_cpu/fiber.h"

namespace bk::emulator {

#if defined(__x86_64__)

// The callee-saved registers go onto the old stack and come from the new one.
// swapcontext would do the same with a system call for the signal mask.
asm(R"(
.text
.globl bk_emulator_switch
.type bk_emulator_switch, @function
bk_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size bk_emulator_switch, .-bk_emulator_switch
)");
extern "C" void bk_emulator_switch(void** from, void* to);  // NOLINT

void Prepare(Context* context, char* stack, size_t size, void (*entry)()) {
  // Six registers, the entry as return address, and one word so that the stack
  // has the alignment that a called function expects.
  auto* top = reinterpret_cast<uint64_t*>(stack + size) - 8;
  for (int i = 0; i < 8; ++i) top[i] = 0;
  top[6] = reinterpret_cast<uint64_t>(entry);
  context->stack_pointer = top;
}

void Switch(Context* from, Context* to) {
  bk_emulator_switch(&from->stack_pointer, to->stack_pointer);
}

#else

void Prepare(Context* context, char* stack, size_t size, void (*entry)()) {
  getcontext(&context->state);
  context->state.uc_stack.ss_sp = stack;
  context->state.uc_stack.ss_size = size;
  context->state.uc_link = nullptr;
  makecontext(&context->state, entry, 0);
}

void Switch(Context* from, Context* to) {
  swapcontext(&from->state, &to->state);
}

#endif

}  // namespace bk::emulator
