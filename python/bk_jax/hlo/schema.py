"""The messages we read, with only the fields we use.

XLA defines its programs as protocol buffers, and the field numbers never change their meaning:
`hlo.proto` for modules and buffers, `xla_data.proto` for shapes and metadata. The parser skips any
field that is not named here. Three deviations keep reading simple and fast:

| here | in XLA | why |
|---|---|---|
| text is bytes | `string` | a name that is not UTF-8 must not make a program unreadable |
| what many instructions share is bytes | messages | equal bytes are parsed once (`read.py`) |
| all integers have 64 bits | enums and `int32` too | they are the same on the wire |
"""

from __future__ import annotations

import functools
from typing import Any

from bk_jax.hlo.model import HloError

INSTALL = (
    "bk_jax.hlo reads programs with protobuf, which is not installed: pip install 'bk_jax[hlo]'."
)

# Message: field: number and type; `*` marks a repeated field.
MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    # A file is a HloProto or a bare HloModuleProto; only the latter has a field 2.
    "File": {"program": (1, "bytes"), "entry_name": (2, "bytes"), "buffers": (3, "bytes")},
    "Module": {
        "name": (1, "bytes"),
        "computations": (3, "*Computation"),
        "entry": (6, "int"),
        "schedule": (7, "Schedule"),
        "frames": (17, "FrameIndex"),
    },
    "Computation": {
        "name": (1, "bytes"),
        "instructions": (2, "*Instruction"),
        "id": (5, "int"),
        "root": (6, "int"),
    },
    "Instruction": {
        "name": (1, "bytes"),
        "opcode": (2, "bytes"),
        "shape": (3, "bytes"),
        "metadata": (7, "bytes"),
        "parameter": (9, "int"),
        "element": (13, "int"),
        "convolution": (16, "bytes"),
        "target": (28, "bytes"),
        "dot": (30, "bytes"),
        "id": (35, "int"),
        "operands": (36, "*int"),
        "called": (38, "*int"),
        "config": (43, "bytes"),
    },
    "Shape": {
        "dtype": (2, "int"),
        "dims": (3, "*int"),
        "parts": (4, "*Shape"),
        "layout": (5, "Layout"),
    },
    "Layout": {"minor_to_major": (1, "*int")},
    "Metadata": {"name": (2, "bytes"), "file": (3, "bytes"), "line": (4, "int"), "frame": (15, "int")},
    "Dot": {"contracted": (1, "*int"), "batched": (3, "*int")},
    "Convolution": {"features": (4, "int")},
    "Schedule": {"sequences": (1, "*Sequences")},
    "Sequences": {"computation": (1, "int"), "sequence": (2, "Sequence")},
    "Sequence": {"instructions": (1, "*int")},
    "FrameIndex": {"files": (1, "*bytes"), "locations": (3, "*Location"), "frames": (4, "*Frame")},
    "Location": {"file": (1, "int"), "line": (3, "int")},
    "Frame": {"location": (1, "int")},
    "Buffers": {"values": (1, "*Value"), "allocations": (3, "*Allocation")},
    "Value": {"id": (1, "int"), "size": (2, "int"), "place": (3, "ValuePlace")},
    "ValuePlace": {"path": (3, "*int"), "instruction": (4, "int")},
    "Allocation": {
        "size": (2, "int"),
        "is_thread_local": (3, "bool"),
        "is_argument": (5, "bool"),
        "is_output": (7, "bool"),
        "is_constant": (12, "bool"),
        "assigned": (9, "*Assigned"),
    },
    "Assigned": {"value": (1, "int"), "offset": (2, "int")},
}  # fmt: skip


def parse(name: str, data: bytes) -> Any:
    r"""A message of one of the types above.

    >>> parse("Sequence", b"\x0a\x03\x07\x96\x01").instructions
    [7, 150]

    Raises:
      HloError: if the bytes are no such message, or one that nests deeper than 100 messages.
    """
    decode_error, classes = _classes()
    try:
        return classes[name].FromString(data)
    except decode_error:
        raise HloError(
            f"not a protocol buffer, damaged, nested too deeply, or too large for memory ({name})."
        ) from None


@functools.cache
def _classes() -> tuple[type[Exception], dict[str, Any]]:
    """The error of a bad message, and the class of every message."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
    except ImportError:
        raise ImportError(INSTALL, name="google.protobuf") from None

    file = descriptor_pb2.FileDescriptorProto(name="bk_hlo.proto", package="bk", syntax="proto3")
    for name, fields in MESSAGES.items():
        made = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _describe(made.field.add(name=field, number=number), kind)
    pool = descriptor_pool.DescriptorPool()  # our own: XLA's names stay free
    pool.AddSerializedFile(file.SerializeToString())
    found = {name: pool.FindMessageTypeByName(f"bk.{name}") for name in MESSAGES}
    made_classes = {name: message_factory.GetMessageClass(each) for name, each in found.items()}
    return message.DecodeError, made_classes


def _describe(field: Any, kind: str) -> None:
    field.label = field.LABEL_REPEATED if kind.startswith("*") else field.LABEL_OPTIONAL
    kind = kind.removeprefix("*")
    plain = {"int": field.TYPE_INT64, "bool": field.TYPE_BOOL, "bytes": field.TYPE_BYTES}
    field.type = plain.get(kind, field.TYPE_MESSAGE)
    if kind not in plain:
        field.type_name = f".bk.{kind}"
