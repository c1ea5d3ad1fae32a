"""The bytes that protos/README.md shows are the bytes that are sent."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from grpc_ps.client.shared.codec import encode_message
from grpc_ps.client.shared.errors import error_classes
from grpc_ps.protos import control_pb2, coordination_pb2, job_pb2, parameter_server_pb2, tensor_pb2
from grpc_ps.protos.job_pb2 import Identity
from grpc_ps.protos.parameter_server_pb2 import PushHeader, PushPullRequest

PROTOS = Path(__file__).parents[2] / "protos"
README = (PROTOS / "README.md").read_text()


def shown_bytes() -> bytes:
    """The listing under "Bytes": hexadecimal pairs, "00 ... 00" standing for the padding."""
    listing = README.split("## Bytes")[1].split("```")[1]
    shown = b""
    for line in listing.splitlines():
        if "..." in line:
            shown += bytes(60)
        elif match := re.match(r"\s*((?:[0-9a-f]{2} )*[0-9a-f]{2})(?:\s{2,}|$)", line):
            shown += bytes.fromhex(match[1])
    return shown


def test_the_worked_example() -> None:
    header = PushHeader(
        id=Identity(run=1, generation=1, worker=0, incarnation=1),
        sequence=2,
        kind=PushHeader.KIND_GRADIENTS,
        examples=1,
        total_bytes=64,
    )
    data = struct.pack("<f", 1.0) + bytes(60)
    assert encode_message(PushPullRequest(header=header, end=True), 0, [data]) == shown_bytes()


def test_every_refusal_is_named_with_its_status() -> None:
    table = README.split("## Refusals")[1].split("## Bytes")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    named = {name: row[2].strip() for row in rows for name in re.findall(r"`([A-Z_]+)`", row[1])}
    # What no server says: a client or a command finds these by itself.
    own = {"UNREACHABLE", "ENDING", "DATA", "NON_FINITE", "JOB_FAILED"}
    refusals = {name: cls for name, cls in error_classes().items() if name not in own}
    assert named == {name: cls.status.name for name, cls in refusals.items()}


def test_next_ids_are_right() -> None:
    for file in (tensor_pb2, job_pb2, parameter_server_pb2, coordination_pb2, control_pb2):
        text = (PROTOS / Path(file.DESCRIPTOR.name).name).read_text()
        for next_id, name in re.findall(r"// Next ID: (\d+)\nmessage (\w+)", text):
            fields = file.DESCRIPTOR.message_types_by_name[name].fields
            assert int(next_id) == max(field.number for field in fields) + 1, name
