"""protos/README.md in pieces: sections, tables, listings; and what the .proto files say."""

from __future__ import annotations

import re
from pathlib import Path

from grpc_ps.protos import control_pb2, coordination_pb2, job_pb2, parameter_server_pb2, tensor_pb2

PROTOS = Path(__file__).parents[1] / "protos"
README = (PROTOS / "README.md").read_text()
FILES = (tensor_pb2, job_pb2, parameter_server_pb2, coordination_pb2, control_pb2)


def section(title: str) -> str:
    """The text under a heading, up to the next heading of its rank or above."""
    found = re.search(rf"^(##+) {re.escape(title)}\n(.*?)(?=^\1 |^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[2]


def rows(title: str) -> list[list[str]]:
    """The cells of a section's tables, without their headings; a table of a subsection is not of the section."""
    text = re.split(r"^###", section(title), maxsplit=1, flags=re.MULTILINE)[0]
    lines = text.splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    headings = [number for number, row in enumerate(cells) if set(row[0]) == {"-"}]
    return [row for number, row in enumerate(cells) if not {number, number + 1} & set(headings)]


def names(text: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", text)


def listings(title: str, language: str = "text") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", section(title), re.MULTILINE | re.DOTALL)


def rpcs() -> dict[str, str]:
    """Each rpc's comment in the .proto files."""
    text = "\n".join(path.read_text() for path in PROTOS.glob("*.proto"))
    return {name: comment for comment, name in re.findall(r"((?:^ *//.*\n)+) *rpc (\w+)\(", text, re.MULTILINE)}
