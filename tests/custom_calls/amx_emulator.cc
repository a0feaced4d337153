#include "tests/custom_calls/amx_emulator.h"

#include <signal.h>
#include <ucontext.h>

#include <cstring>

#include "custom_calls/cpu/amx/soft_tile.h"

namespace bk {
namespace {

struct Machine {
  SoftTile tiles[8];
  bool configured = false;
  AmxCounts counts = {};
};
thread_local Machine machine;

// An instruction with the prefix that all of AMX has: VEX of three bytes, map
// 0F38, 128 bits, W0.
struct Instruction {
  int prefix;  // 0: none, 2: F3, 3: F2
  int opcode;
  int mode, reg, rm;  // of the ModRM byte
  int third;          // VEX.vvvv
  uint64_t address;   // of the operand in memory
  int64_t stride;     // its index register
  int length;
};

template <class T>
T* At(uint64_t address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return reinterpret_cast<T*>(address);
}

// Register 0 to 15 in the order of instruction codes.
uint64_t Register(const ucontext_t& context, int number) {
  constexpr int kOrder[16] = {
      REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
      REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return static_cast<uint64_t>(context.uc_mcontext.gregs[kOrder[number]]);
}

// Bytes of the operand in memory: [base], [base + index] and a displacement.
// Returns false for forms that the kernels have no reason to use.
bool DecodeMemory(const ucontext_t& context, const uint8_t* code,
                  Instruction& result) {
  const int base_high = (code[1] & 0x20) == 0 ? 8 : 0;
  const int index_high = (code[1] & 0x40) == 0 ? 8 : 0;
  int base = result.rm;
  if (base == 4) {
    const uint8_t sib = code[result.length++];
    base = sib & 7;
    const int index = ((sib >> 3) & 7) + index_high;
    if (sib >> 6 != 0) return false;
    if (index != 4) {
      result.stride = static_cast<int64_t>(Register(context, index));
    }
  }
  if (base == 5 && result.mode == 0) return false;
  result.address = Register(context, base + base_high);
  if (result.mode == 1) {
    result.address += static_cast<int8_t>(code[result.length++]);
  } else if (result.mode == 2) {
    int32_t displacement;
    std::memcpy(&displacement, code + result.length, sizeof displacement);
    result.address += displacement;
    result.length += 4;
  }
  return true;
}

bool Decode(const ucontext_t& context, Instruction& result) {
  const auto* code = At<const uint8_t>(
      static_cast<uint64_t>(context.uc_mcontext.gregs[REG_RIP]));
  if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || (code[2] & 0x84) != 0) {
    return false;
  }
  const uint8_t modrm = code[4];
  result = {code[2] & 3,
            code[3],
            modrm >> 6,
            (modrm >> 3) & 7,
            modrm & 7,
            ~(code[2] >> 3) & 15,
            0,
            0,
            5};
  return result.mode == 3 || DecodeMemory(context, code, result);
}

// Palette 1 and eight whole tiles: the only shape that is emulated.
bool Configure(const uint8_t* config) {
  bool whole = config[0] == 1;
  for (int i = 1; i < 16; ++i) whole &= config[i] == 0;
  for (int64_t tile = 0; tile < 16; ++tile) {
    uint16_t row_bytes;
    std::memcpy(&row_bytes, config + 16 + 2 * tile, sizeof row_bytes);
    whole &= row_bytes == (tile < 8 ? 64 : 0);
    whole &= config[48 + tile] == (tile < 8 ? 16 : 0);
  }
  machine.configured = whole;
  std::memset(machine.tiles, 0, sizeof machine.tiles);
  return whole;
}

void MoveRows(const Instruction& i, bool load) {
  for (int64_t row = 0; row < 16; ++row) {
    auto* memory = At<uint8_t>(i.address) + row * i.stride;
    auto* tile = machine.tiles[i.reg].words[row];
    if (load) {
      std::memcpy(tile, memory, 64);
    } else {
      std::memcpy(memory, tile, 64);
    }
  }
}

// Returns whether the instruction is one of AMX, and allowed.
bool Execute(const Instruction& i) {
  constexpr int kNone = 0, kF3 = 2, kF2 = 3;
  AmxCounts& counts = machine.counts;
  const bool memory = i.mode != 3;
  if (i.opcode == 0x49 && i.prefix == kNone && memory && i.reg == 0) {
    ++counts.configure;
    return Configure(At<const uint8_t>(i.address));
  }
  if (!machine.configured) return false;
  if (i.opcode == 0x49 && i.prefix == kNone && i.reg == 0 && i.rm == 0) {
    ++counts.release;
    machine.configured = false;
  } else if (i.opcode == 0x49 && i.prefix == kF2 && !memory && i.rm == 0) {
    ++counts.zero;
    machine.tiles[i.reg] = {};
  } else if (i.opcode == 0x4b && i.prefix == kF2 && memory && i.rm == 4) {
    ++counts.load;
    MoveRows(i, true);
  } else if (i.opcode == 0x4b && i.prefix == kF3 && memory && i.rm == 4) {
    ++counts.store;
    MoveRows(i, false);
  } else if (i.opcode == 0x5c && i.prefix == kF3 && !memory && i.third < 8) {
    ++counts.dot;
    DotSoftTiles(machine.tiles[i.rm], machine.tiles[i.third],
                 machine.tiles[i.reg]);
  } else {
    return false;
  }
  return true;
}

void Handle(int signal_number, siginfo_t* /*info*/, void* raw_context) {
  auto& context = *static_cast<ucontext_t*>(raw_context);
  Instruction instruction;
  if (Decode(context, instruction) && Execute(instruction)) {
    context.uc_mcontext.gregs[REG_RIP] += instruction.length;
    return;
  }
  signal(signal_number, SIG_DFL);  // the instruction comes again, and ends it
}

}  // namespace

void EmulateAmx() {
  struct sigaction action = {};
  action.sa_sigaction = Handle;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGILL, &action, nullptr);
}

AmxCounts TakeAmxCounts() {
  const AmxCounts counts = machine.counts;
  machine.counts = {};
  return counts;
}

bool AmxIsConfigured() { return machine.configured; }

}  // namespace bk
