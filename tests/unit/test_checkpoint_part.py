"""Parts of checkpoints: what is written is what the package safetensors and our own reader read."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from checkpoints import SPECS, pieces_of, state
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import deserialize, safe_open

from grpc_ps.client.shared.blocks import ITEM_BYTES
from grpc_ps.client.shared.checkpoint_format import Piece, piece_of
from grpc_ps.client.shared.checkpoint_part import TYPE_NAMES, PartReader, write_part
from grpc_ps.client.shared.durable import replacing
from grpc_ps.client.shared.errors import CheckpointError
from grpc_ps.client.shared.image import numpy_dtype

FILE = "shard-00000-of-00001.safetensors"


def write(folder: Path, **more: Any) -> Any:
    return write_part(folder, FILE, pieces_of(SPECS, state(), 0, 1), {"step": "40"}, **more)


def test_the_package_safetensors_reads_it(tmp_path):
    part = write(tmp_path / "s")
    data = (tmp_path / "s" / FILE).read_bytes()
    assert (part.file, part.bytes, part.sha256) == (FILE, len(data), hashlib.sha256(data).hexdigest())
    found = dict(deserialize(data))
    arrays = {key: array for key, array in state().items() if array.size}
    assert len(found) == len(arrays)
    for (parameter, slot), array in arrays.items():
        key = Piece(parameter, slot, 0, array.size, array.dtype.name).key
        assert found[key]["dtype"] == TYPE_NAMES[array.dtype.name]
        assert found[key]["shape"] == [array.size]
        assert bytes(found[key]["data"]) == array.tobytes()
    with safe_open(tmp_path / "s" / FILE, "numpy") as file:
        assert file.metadata() == {"step": "40"}
        kernel = file.get_tensor("values/dense/kernel[0:400]")
    assert kernel.tobytes() == arrays["dense/kernel", ""].tobytes()


def test_every_tensor_lies_at_a_multiple_of_its_elements(tmp_path):
    write(tmp_path / "s")
    reader = PartReader(tmp_path / "s" / FILE)
    assert all(offset % ITEM_BYTES[piece.dtype] == 0 for piece, offset in reader.pieces.items())
    assert min(reader.pieces.values()) % 64 == 0
    reader.close()


def test_ranges_are_read_without_the_rest(tmp_path):
    write(tmp_path / "s")
    reader = PartReader(tmp_path / "s" / FILE)
    bias = state()["dense/bias", "m"]
    assert bias.dtype == ml_dtypes.bfloat16
    out = np.zeros(3, bias.dtype)
    reader.read(reader.pieces[Piece("dense/bias", "m", 0, 10, "bfloat16")] + 2 * 4, out.view(np.uint8).data)
    assert out.tobytes() == bias[4:7].tobytes()
    with pytest.raises(ValueError, match="ends too soon"):
        reader.read((tmp_path / "s" / FILE).stat().st_size - 2, out.view(np.uint8).data)
    reader.close()
    reader.close()


def test_large_pieces_are_written_four_mebibytes_at_a_time(tmp_path):
    points: list[str] = []
    data = np.arange(9 << 20, dtype=np.uint8)
    piece = Piece("p", "", 0, data.size // 4, "float32")
    part = write_part(tmp_path / "s", FILE, [(piece, data.data)], {}, points.append)
    assert points == ["part.open", *["part.write"] * 4, "part.sync", "part.rename", "part.done"]
    assert (tmp_path / "s" / FILE).read_bytes().endswith(data.tobytes())
    assert part.bytes % 64 == 0
    assert [file.name for file in (tmp_path / "s").iterdir()] == [FILE]


def test_data_that_does_not_fit_is_a_fault_of_the_caller(tmp_path):
    piece = Piece("p", "m", 0, 4, "int32")
    with pytest.raises(ValueError, match=r"slots/m/p\[0:4\] has 15 bytes of data, not 16"):
        write_part(tmp_path, FILE, [(piece, memoryview(bytes(15)))], {})
    with pytest.raises(ValueError, match=r"slots/m/p\[0:4\] is there twice"):
        write_part(tmp_path, FILE, [(piece, memoryview(bytes(16)))] * 2, {})
    assert not list(tmp_path.iterdir())


def test_the_folder_above_must_be_there(tmp_path):
    with pytest.raises(CheckpointError, match=r"none/s/shard-0.*: cannot be written: No such file or directory"):
        write(tmp_path / "none" / "s")


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/"), max_size=8)


def test_a_file_is_replaced_in_one_rename_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fails(point: str) -> None:
        assert point == "file.sync"
        raise RuntimeError

    with pytest.raises(RuntimeError), replacing(path, fails) as file:
        file.write(b"half")
    assert [it.read_text() for it in tmp_path.iterdir()] == ["old"]
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
        inode = os.fstat(file.fileno()).st_ino
    assert path.read_text() == "new"
    assert path.stat().st_ino == inode


@pytest.mark.parametrize(("number", "works"), [(errno.EINVAL, True), (errno.ENOTSUP, True), (errno.EIO, False)])
def test_a_file_system_may_be_unable_to_sync_folders_but_not_fail(tmp_path, monkeypatch, number, works):
    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    if works:
        assert write(tmp_path / "s").file == FILE
    else:
        with pytest.raises(CheckpointError, match="cannot be written: Input/output error"):
            write(tmp_path / "s")


@settings(deadline=None)
@given(names, words, st.integers(0, 1 << 62), st.integers(0, 1 << 62), st.sampled_from(sorted(ITEM_BYTES)))
def test_the_key_of_a_piece_says_it_all(parameter, slot, start, size, dtype):
    piece = Piece(parameter, slot, start, start + size, dtype)
    assert piece_of(piece.key, dtype) == piece


@pytest.mark.parametrize(
    "key",
    ["", "a[0:1]", "values/a", "values/a[1:0]", "values/[0:1]", "values/a[01:2]", "slots/a[0:1]", "values/a[0:1] "],
)
def test_other_keys_are_no_pieces(key):
    with pytest.raises(ValueError, match="no piece of a parameter"):
        piece_of(key, "float32")


HEADERS = {
    "short": (b"", "is no file of tensors"),
    "long": (b"\xff" * 8 + b"{}", "is no file of tensors"),
    "list": (b"[]", "is no JSON object"),
    "garbage": (b"{]", "Expecting"),
    "plain": (json.dumps({"values/a[0:1]": 1}).encode(), "describes 'values/a"),
    "type": (json.dumps({"values/a[0:1]": {"dtype": "U8", "data_offsets": [0, 1]}}).encode(), "describes"),
    "outside": (json.dumps({"values/a[0:1]": {"dtype": "F32", "data_offsets": [0, 4]}}).encode(), "lies at 0 to 4"),
}


@pytest.mark.parametrize("what", HEADERS)
def test_files_of_another_kind_are_refused(tmp_path, what):
    header, text = HEADERS[what]
    prefix = b"" if what in ("short", "long") else len(header).to_bytes(8, "little")
    (tmp_path / FILE).write_bytes(prefix + header)
    with pytest.raises(ValueError, match=text):
        PartReader(tmp_path / FILE)


@pytest.mark.parametrize("dtype", sorted(ITEM_BYTES))
def test_every_type_has_a_name_of_the_format(tmp_path, dtype):
    array = np.array([0, 1, 1], numpy_dtype(dtype))
    write_part(tmp_path / "s", FILE, [(Piece("p", "", 5, 8, dtype), array.view(np.uint8).data)], {})
    [(name, tensor)] = deserialize((tmp_path / "s" / FILE).read_bytes())
    assert (name, tensor["dtype"], bytes(tensor["data"])) == ("values/p[5:8]", TYPE_NAMES[dtype], array.tobytes())
