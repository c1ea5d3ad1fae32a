"""The manifest of a checkpoint: everything of it but the numbers, as JSON that knows whether it was damaged. Pure."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.tables import TableSpec

FORMAT = 1
Setting: TypeAlias = int | float | str | bool

_CHECKSUM = re.compile(r'"checksum": "([0-9a-f]{64})"\n\}\n\Z')
_NO_CHECKSUM = "0" * 64
_FILE = re.compile(r"[\w][\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Part:
    """A shard's file: its name, its length and the hex sha256 of its bytes."""

    file: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything of a checkpoint but the numbers: what goes on from it needs nothing else.

    Attributes:
        run: the job's id.
        global_step: of the values and slots.
        opened: as the lead counts it.
        settings: the job's now, by the names of `job.proto`, and with `opened_settings` those that it was opened with.
        shard_count: shards that wrote it; any number may read it.
        plan_fingerprint: of their placement.
        cursor: first batch number that nobody had.
        returned: numbers below it that are to be used yet: returned, queued and leased ones.
        learning_rate_factor, paused, started: of the running job (`psctl set`).
        created: UTC, ISO 8601.
        parts: one a shard, in their order.
    """

    run: int
    global_step: int
    opened: int
    model: str
    settings: Mapping[str, Setting]
    opened_settings: Mapping[str, Setting]
    parameters: tuple[ParameterSpec, ...]
    shard_count: int
    plan_fingerprint: str
    cursor: int
    returned: tuple[int, ...]
    learning_rate_factor: float
    paused: bool
    started: bool
    created: str
    parts: tuple[Part, ...]
    format: int = FORMAT

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.bytes for part in self.parts)

    def to_json(self) -> str:
        """Writes it as JSON whose last entry is the sha256 of the text with zeros in that entry's place.

        Raises:
            ValueError: a number is not finite.
        """
        parameters = [
            {"name": it.name, "shape": list(it.shape), "dtype": it.dtype, "trainable": it.trainable}
            | ({"table": asdict(it.table)} if it.table is not None else {})
            for it in self.parameters
        ]
        parts = [{"file": it.file, "bytes": it.bytes, "sha256": it.sha256} for it in self.parts]
        record = {
            **{name: getattr(self, name) for name in _FIELDS},
            "run": f"{self.run:016x}",
            "settings": dict(self.settings),
            "opened_settings": dict(self.opened_settings),
            "returned": list(self.returned),
            "learning_rate_factor": float(self.learning_rate_factor),
            "parameters": parameters,
            "parts": parts,
            "checksum": _NO_CHECKSUM,
        }
        text = json.dumps(record, indent=1, allow_nan=False) + "\n"
        return text[: -len(_NO_CHECKSUM) - 4] + _sha256(text) + text[-4:]

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Reads what `to_json` wrote, to the letter. Raises ValueError that says what is wrong."""
        record = _checked(text)
        if record.keys() != {*_FIELDS, "checksum"}:
            missing, more = sorted(_FIELDS - record.keys()), sorted(record.keys() - {*_FIELDS, "checksum"})
            what = f"has no {missing[0]!r}" if missing else f"has an unknown field {more[0]!r}"
            raise ValueError(what)
        fields = {name: _typed(record, name, kind) for name, kind in _FIELDS.items()}
        fields["run"] = _hex(fields["run"])
        fields["returned"] = tuple(_whole(number, "returned") for number in fields["returned"])
        fields["parameters"] = tuple(map(_parameter, fields["parameters"]))
        fields["parts"] = tuple(map(_part, fields["parts"]))
        for name in ("settings", "opened_settings"):
            for key, value in fields[name].items():
                if not isinstance(value, int | float | str):
                    raise ValueError(f"{name!r} has no plain value for {key!r}")
        if len(fields["parts"]) != fields["shard_count"]:
            raise ValueError(f"names {len(fields['parts'])} parts of {fields['shard_count']} shards")
        return cls(**fields)


_FIELDS: Mapping[str, Any] = MappingProxyType(
    {
        "format": int,
        "run": str,
        "global_step": int,
        "opened": int,
        "model": str,
        "settings": dict,
        "opened_settings": dict,
        "parameters": list,
        "shard_count": int,
        "plan_fingerprint": str,
        "cursor": int,
        "returned": list,
        "learning_rate_factor": float,
        "paused": bool,
        "started": bool,
        "created": str,
        "parts": list,
    }
)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _checked(text: str) -> dict[str, Any]:
    """Parses the text. What it says is believed only if its checksum is right, so a flipped digit is found out."""
    if not text.strip():
        raise ValueError("is empty")
    try:
        record = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is no JSON: {error}") from None
    if not isinstance(record, dict):
        raise ValueError("is no JSON object")
    if isinstance(record.get("format"), int) and record["format"] > FORMAT:
        raise ValueError(f"has format {record['format']}, of a newer version of grpc-ps; this one reads {FORMAT}")
    found = _CHECKSUM.search(text)
    if found is None:
        raise ValueError("has no 'checksum' at its end")
    if _sha256(text[: found.start(1)] + _NO_CHECKSUM + text[found.end(1) :]) != found[1]:
        raise ValueError("has been changed or damaged: its checksum is another")
    return record


def _typed(record: Mapping[str, Any], name: str, kind: type) -> Any:
    value = record.get(name)
    if kind is int:
        return _whole(value, name)
    if not isinstance(value, kind) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"{name!r} is no {kind.__name__}")
    return value


def _whole(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name!r} is no whole number: {value!r}")
    return value


def _hex(text: str) -> int:
    if not re.fullmatch(r"[0-9a-f]{16}", text):
        raise ValueError("'run' is no number of 16 hex digits")
    return int(text, 16)


def _parameter(record: Any) -> ParameterSpec:
    if not isinstance(record, dict):
        raise ValueError("'parameters' has something that is no parameter")
    kinds = {"name": str, "shape": list, "dtype": str, "trainable": bool}
    fields = {name: _typed(record, name, kind) for name, kind in kinds.items()}
    fields["shape"] = tuple(_whole(extent, "shape") for extent in fields["shape"])
    if "table" in record:
        fields["table"] = _table(record["table"])
    return ParameterSpec(**fields)


def _table(record: Any) -> TableSpec:
    if not isinstance(record, dict):
        raise ValueError("'table' is no table")
    kinds = {"spread": float, "lazy": bool, "push_rows": int, "capacity": int}
    return TableSpec(**{name: _typed(record, name, kind) for name, kind in kinds.items()})


def _part(record: Any) -> Part:
    if not isinstance(record, dict):
        raise ValueError("'parts' has something that is no part")
    part = Part(*(_typed(record, name, kind) for name, kind in (("file", str), ("bytes", int), ("sha256", str))))
    # A name that leads out of the folder is nobody's part.
    if not _FILE.fullmatch(part.file):
        raise ValueError(f"'parts' names the file {part.file!r}")
    return part
