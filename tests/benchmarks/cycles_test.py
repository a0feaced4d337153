"""The static cycle model: machine code is read as it runs, and each gate finds what it is for."""

import numpy as np
import pytest
from support.machine_code import GOOD, assemble

from benchmarks.gpu.cycles import architectures, banks, counts, gates, model, opcodes, sass
from benchmarks.gpu.cycles.loops import loops, steady_path
from benchmarks.gpu.cycles.traffic import Product, product_work


def function(text: str) -> sass.Function:
    return sass.Function("kernel", "sm_80", assemble(text))


def test_a_dump_has_its_functions_by_architecture():
    code = assemble(GOOD)
    text = f"arch = sm_80\nFunction : one\n{code}\narch = sm_90\nFunction : two\n{code}"
    found = list(sass.functions(text))
    assert [(one.name, one.architecture) for one in found] == [("one", "sm_80"), ("two", "sm_90")]
    assert len(found[0].instructions) == 14
    assert found[0].instructions[11] == sass.Instruction(0xB0, "@P0", "BRA", "0x40")


def test_one_turn_of_the_main_loop_is_counted():
    (way,) = counts.main_loops(function(GOOD))
    turn = counts.count(way)
    assert (turn.issued, turn.tensor_instructions, turn.per_product) == (8, 4, 2.0)
    assert turn.tensor == {("bf16", False): 4 * 16 * 8 * 16}
    assert turn.wavefronts == 12  # two loads of matrices and one copy, 512 bytes each
    assert turn.loaded == 512


def test_the_usual_way_has_the_wide_loads_and_not_the_last_turn():
    text = """
    MOV R1, RZ
    HEAD: HMMA.16816.F32.BF16 R16, R8, R12, R16
    @P0 BRA JOIN
    @P1 BRA SLOW
    LDG.E.128 R4, [R2.64]
    BRA JOIN
    SLOW: LDG.E.U16 R4, [R2.64]
    LDG.E.U16 R5, [R2.64]
    LDG.E.U16 R6, [R2.64]
    JOIN: @P2 BRA HEAD
    EXIT
    """
    one = function("\n".join(line.strip() for line in text.strip().splitlines()))
    blocks = sass.basic_blocks(one.instructions)
    (loop,) = loops(blocks)
    way = steady_path(blocks, loop, counts.worth)
    assert [step.opcode for step in way] == [
        "HMMA.16816.F32.BF16", "BRA", "BRA", "LDG.E.128", "BRA", "BRA",
    ]  # fmt: skip


def test_only_the_innermost_loop_with_products_is_a_main_loop():
    text = "OUTER: IADD3 R1, R1, 0x1, RZ\n" + GOOD.strip().replace(
        "STG.E.128 [R2.64], R16", "@P3 BRA OUTER"
    )
    (way,) = counts.main_loops(function(text))
    assert len(way) == 8


@pytest.mark.parametrize(
    ("opcode", "multiply_adds", "elements", "is_group"),
    [
        ("HMMA.16816.F32.BF16", 2048, "bf16", False),
        ("HMMA.16816.F32", 2048, "f16", False),
        ("HMMA.1688.F32.TF32", 1024, "tf32", False),
        ("HMMA.1684.F32.TF32", 512, "tf32", False),
        ("HGMMA.64x256x16.F32.BF16", 16 * 256 * 16, "bf16", True),
    ],
)
def test_tensor_instructions_say_what_they_multiply(opcode, multiply_adds, elements, is_group):
    found = opcodes.tensor_product(sass.Instruction(0, "", opcode, "R0, R1, R2, R0"))
    assert found is not None
    assert found[:3] == (multiply_adds, elements, is_group)


@pytest.mark.parametrize(
    ("code", "nbytes", "cycles"),
    [
        ("LDSM.16.M88.4", 16, 4), ("LDSM.16.MT88.2", 8, 2), ("LDS.128", 16, 4), ("LDS", 4, 1),
        ("STS.U16", 2, 1), ("LDGSTS.E.BYPASS.LTC128B.128", 16, 4), ("LDG.E.64", 8, 2),
        ("LDG.E.U8", 1, 1), ("HMMA.16816.F32", 4, 0),
    ],
)  # fmt: skip
def test_accesses_have_their_width_and_wavefronts(code, nbytes, cycles):
    one = sass.Instruction(0, "", code, "R4, [R2]")
    assert opcodes.access_bytes(one) == nbytes
    assert opcodes.wavefronts(one) == cycles


def test_a_kernel_like_those_of_libraries_passes_every_gate():
    assert gates.problems(function(GOOD)) == dict.fromkeys(gates.GATES, "")


@pytest.mark.parametrize(
    ("gate", "old", "new", "message"),
    [
        ("instructions", "@P0 BRA", "IADD3 R50, R50, 0x1, RZ\n" * 5 + "@P0 BRA",
         "3.25 instructions for each product"),
        ("copies", "LDGSTS.E.BYPASS.128 [R4+0x400], [R2.64]", "LDG.E.128 R32, [R2.64]",
         "no asynchronous copies"),
        ("copies", "LDSM.16.M88.4", "LDS.128", "no loads of matrices"),
        ("generic", "LDSM.16.M88.4 R12, [R4+0x200]",
         "LDSM.16.M88.4 R12, [R4+0x200]\nLD.E R40, [R2.64]", "1 generic"),
        ("division", "LDSM.16.M88.4 R12,", "I2F.U32.RP R40, R41\nMUFU.RCP R40, R40\nLDSM.16.M88.4 R12,",
         "1 divisions"),
        ("division", "LDSM.16.M88.4 R12,", "CALL.REL.NOINC 0x1000\nLDSM.16.M88.4 R12,", "1 divisions"),
        ("banks", "SHF.L.U32 R4, R0, 0x4, RZ", "SHF.L.U32 R4, R0, 0x7, RZ", "8 ways at LDSM"),
    ],
)  # fmt: skip
def test_each_gate_finds_its_mistake(gate, old, new, message):
    assert old in GOOD
    found = gates.problems(function(GOOD.replace(old, new)))
    assert message in found[gate]
    if gate not in ("copies", "generic"):
        assert [name for name, problem in found.items() if problem] == [gate]


def test_a_jump_that_is_spelled_as_a_call_is_no_division():
    text = GOOD.replace("LDSM.16.M88.4 R12,", "@P4 CALL.REL.NOINC 0x70\nLDSM.16.M88.4 R12,")
    assert gates.problems(function(text))["division"] == ""


def test_addresses_follow_from_the_number_of_the_thread():
    """A swizzle: rows of 64 bytes, their 16-byte columns exchanged by bits of the row."""
    code = """
    S2R R0, SR_TID.X
    SHF.R.U32.HI R1, RZ, 0x2, R0
    LOP3.LUT R2, R0, 0x3, RZ, 0xc0, !PT
    SHF.R.U32.HI R3, RZ, 0x1, R1
    LOP3.LUT R3, R3, 0x3, RZ, 0xc0, !PT
    LOP3.LUT R2, R2, R3, RZ, 0x3c, !PT
    IMAD.SHL.U32 R2, R2, 0x10, RZ
    LEA R4, R1, R2, 0x6
    STS.128 [R4+0x40], R8
    """
    one = function("\n".join(line.strip() for line in code.strip().splitlines()))
    machine = banks.Machine()
    for step in one.instructions:
        machine.step(step)
    lane = np.arange(32)
    wanted = lane // 4 * 64 + ((lane & 3) ^ (lane // 8 & 3)) * 16 + 64
    np.testing.assert_array_equal(machine.address(one.instructions[-1]), wanted)
    assert banks.ways(wanted, 16) == 1


def test_what_comes_from_memory_has_no_address():
    one = function("S2R R0, SR_TID.X\nLDG.E R4, [R2.64]\nIADD3 R4, R4, R0, RZ\nLDS R5, [R4]")
    assert banks.conflicts(one.instructions[:3], one.instructions[3:]) == []


def kernel(**changes) -> model.Kernel:
    (way,) = counts.main_loops(function(GOOD))
    values = {
        "name": "k", "turn": counts.count(way), "warps": 4, "tile": (32, 32), "registers": 128,
        "shared": 16 << 10, "outside": 100, "threads": 128,
    }  # fmt: skip
    return model.Kernel(**{**values, **changes})


def test_blocks_at_once_follow_from_registers_shared_memory_and_warps():
    gpu = architectures.A100
    assert model.blocks_at_once(kernel(), gpu) == 4  # 65536 / (128 * 128)
    assert model.blocks_at_once(kernel(shared=80 << 10), gpu) == 2
    assert model.blocks_at_once(kernel(registers=16, shared=0), gpu) == 16


def test_the_busiest_resource_bounds_a_turn():
    gpu = architectures.A100
    found = model.bound(kernel(), gpu, blocks=4)
    assert found.resources["issue"] == 8 * 16 / 4
    assert found.resources["tensor"] == 16 * 4 * 2048 / 1024
    assert found.resources["shared"] == 12 * 16
    assert found.limit == "L2"
    assert found.cycles == 4 * 4 * 512 / gpu.l2_rate
    assert kernel().depth == 4 * 4 * 2048 / 1024


def test_time_is_whole_waves_and_grows_by_one_with_one_tile_more():
    gpu = architectures.A100
    at_once = gpu.multiprocessors * 4
    one = model.cycles(kernel(), gpu, model.Work(at_once, 320, 0))
    assert model.cycles(kernel(), gpu, model.Work(3 * at_once, 320, 0)) == 3 * one
    more = model.cycles(kernel(), gpu, model.Work(at_once + 1, 320, 0))
    assert one < more < 2 * one


def test_operands_that_stay_in_the_cache_are_read_once():
    gpu = architectures.A100
    small = product_work(kernel(), gpu, Product(1024, 1024, 1024, 2, 0))
    assert small.memory_bytes == 2 * 1024 * 1024 * 2
    large = product_work(kernel(), gpu, Product(1 << 16, 1 << 16, 1024, 2, 0))
    assert large.memory_bytes > 4 * (2 << 16) * 1024 * 2


def test_an_unknown_gpu_is_an_error():
    with pytest.raises(ValueError, match="no GPU 'V100' in the table, which has A100, H100, B200"):
        architectures.find("V100")
