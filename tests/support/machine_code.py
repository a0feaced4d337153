"""Machine code for tests, in the form that cuobjdump prints."""

# A loop as libraries have it: four products, two loads of matrices, one copy, a jump.
GOOD = """
S2R R0, SR_TID.X
SHF.L.U32 R4, R0, 0x4, RZ
LDGSTS.E.BYPASS.128 [R4], [R2.64]
LDGDEPBAR
HEAD: LDSM.16.M88.4 R8, [R4]
LDSM.16.M88.4 R12, [R4+0x200]
LDGSTS.E.BYPASS.128 [R4+0x400], [R2.64]
HMMA.16816.F32.BF16 R16, R8, R12, R16
HMMA.16816.F32.BF16 R20, R8, R14, R20
HMMA.16816.F32.BF16 R24, R8, R14, R24
HMMA.16816.F32.BF16 R28, R8, R14, R28
@P0 BRA HEAD
STG.E.128 [R2.64], R16
EXIT
"""


def assemble(text: str) -> str:
    """Lines in the form of cuobjdump: an address each, and addresses in place of labels."""
    lines = text.strip().splitlines()
    labels = {
        line.split(":")[0]: f"{16 * number:#x}" for number, line in enumerate(lines) if ":" in line
    }
    out = []
    for number, line in enumerate(lines):
        code = line.split(": ")[-1]
        for label, address in labels.items():
            code = code.replace(label, address)
        out.append(f"        /*{16 * number:04x}*/    {code} ;    /* 0x0 */")
    return "\n".join(out)
