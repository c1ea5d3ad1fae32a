"""Damaged, foreign and unwritable checkpoints: a clean refusal or the one before, always said."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoints import manifest, write

from grpc_ps.client.shared.checkpoint import verify
from grpc_ps.client.shared.checkpoint_folder import CheckpointFolder
from grpc_ps.client.shared.checkpoint_manifest import Manifest
from grpc_ps.client.shared.errors import CheckpointError

PARTS = ("shard-00000-of-00002.safetensors", "shard-00001-of-00002.safetensors")
FILES = ("manifest.json", *PARTS)


@pytest.fixture
def folder(tmp_path):
    """Two checkpoints of the same job, of steps 20 and 40."""
    made = CheckpointFolder(tmp_path / "ckpt")
    (tmp_path / "ckpt").mkdir()
    write(made, 20)
    write(made, 40)
    return made


def refused(folder: CheckpointFolder, file: str, reason: str) -> None:
    """Step 40 is passed over, once, with its file and the reason; without step 20 nothing is left."""
    skipped: list[str] = []
    found = folder.newest(skipped.append)
    assert found is not None
    assert found.step == 20
    [text] = skipped
    assert text.startswith(f"{folder.step_path(40) / file}: ")
    assert reason in text
    aside = folder.path.parent / "aside"
    folder.step_path(20).rename(aside)
    with pytest.raises(CheckpointError) as caught:
        folder.newest(skipped.append)
    assert caught.value.exit_code == 6
    assert str(caught.value) == f"{folder.path}: none of its checkpoints is whole: {text}"
    aside.rename(folder.step_path(20))


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def cut_one(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def flip(file: Path, position: int = 100, bit: int = 1) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1 << bit
    file.write_bytes(data)


def append(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0")


def swap(file: Path) -> None:
    """With the one of the other checkpoint."""
    other = file.parent.parent / "step-00000020" / file.name
    data = file.read_bytes()
    shutil.copy(other, file)
    other.write_bytes(data)


def directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


WAYS: dict[Callable[[Path], None], tuple[str, str]] = {
    truncate: ("is no JSON", "bytes, not"),
    cut_one: ("has no 'checksum' at its end", "bytes, not"),
    empty: ("is empty", "has 0 bytes, not"),
    flip: ("", "is damaged: its sha256 is not the manifest's"),
    append: ("is no JSON: Extra data", "bytes, not"),
    Path.unlink: ("cannot be read: No such file or directory", "cannot be read: No such file or directory"),
    directory: ("cannot be read: Is a directory", "bytes, not"),
}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_b73_each_file_damaged_in_each_way(folder, file, way):
    way(folder.step_path(40) / file)
    refused(folder, file, WAYS[way][file in PARTS])


@pytest.mark.parametrize("file", PARTS)
def test_b73_a_part_of_another_checkpoint(folder, file):
    swap(folder.step_path(40) / file)
    skipped: list[str] = []
    with pytest.raises(CheckpointError, match=r"none of its checkpoints is whole: .*00000040.*; .*00000020"):
        folder.newest(skipped.append)
    assert [text.split(": ")[0] for text in skipped] == [str(folder.step_path(step) / file) for step in (40, 20)]


def test_b73_a_manifest_or_a_whole_folder_of_another_step(folder):
    shutil.copy(folder.step_path(20) / "manifest.json", folder.step_path(40))
    refused(folder, "manifest.json", "is of step 20, not of its folder's")
    shutil.rmtree(folder.step_path(40))
    shutil.copytree(folder.step_path(20), folder.step_path(40))
    refused(folder, "manifest.json", "is of step 20, not of its folder's")


def test_b73_parts_that_changed_places(folder):
    one, other = (folder.step_path(40) / file for file in PARTS)
    data = one.read_bytes()
    other.rename(one)
    other.write_bytes(data)
    assert {text.split(": ")[0] for text in verify(folder.step_path(40))} == {str(one), str(other)}


def test_b73_one_bit_anywhere_in_a_part(folder):
    moments = random.Random(73)
    for file in PARTS:
        path = folder.step_path(40) / file
        whole = path.read_bytes()
        for position in [*range(8), *(moments.randrange(len(whole)) for _ in range(40))]:
            flip(path, position, moments.randrange(8))
            assert verify(folder.step_path(40)) == [f"{path}: is damaged: its sha256 is not the manifest's"]
            path.write_bytes(whole)
    assert verify(folder.step_path(40)) == []


GARBAGE = {
    "": "is empty",
    "\n \n": "is empty",
    "garbage": "is no JSON: Expecting value",
    "[1, 2]": "is no JSON object",
    "{}": "has no 'checksum' at its end",
    '{"format": 2}': "has format 2, of a newer version of grpc-ps; this one reads 1",
    "\udcff": "codec can't decode",
}


@pytest.mark.parametrize("text", GARBAGE)
def test_b73_garbage_for_a_manifest(folder, text):
    (folder.step_path(40) / "manifest.json").write_bytes(text.encode(errors="surrogateescape"))
    refused(folder, "manifest.json", GARBAGE[text])


@pytest.mark.parametrize("file", FILES)
def test_b73_a_file_that_may_not_be_read(folder, file):
    (folder.step_path(40) / file).chmod(0)
    if os.access(folder.step_path(40) / file, os.R_OK):
        pytest.skip("this user reads everything")
    refused(folder, file, "cannot be read: Permission denied")


def test_b73_a_manifest_that_names_a_missing_file(folder):
    shutil.rmtree(folder.step_path(40))
    (folder.step_path(40)).mkdir()
    shutil.copy(folder.step_path(20) / "manifest.json", folder.step_path(40))
    refused(folder, "manifest.json", "is of step 20")
    whole = Manifest.from_json((folder.step_path(20) / "manifest.json").read_text())
    text = manifest(40, parts=whole.parts).to_json()
    (folder.step_path(40) / "manifest.json").write_text(text)
    refused(folder, PARTS[0], "cannot be read: No such file or directory")


def test_b73_a_step_folder_with_nothing_in_it(folder):
    shutil.rmtree(folder.step_path(40))
    (folder.step_path(40)).mkdir()
    refused(folder, "manifest.json", "cannot be read: No such file or directory")
