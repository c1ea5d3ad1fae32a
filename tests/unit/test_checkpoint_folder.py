"""The folder of checkpoints: commit, choice of the newest, retention, evaluations."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
from checkpoints import SPECS, manifest, state, write
from hypothesis import given, settings
from hypothesis import strategies as st

from grpc_ps.client.shared.blocks import ITEM_BYTES, ParameterSpec, place
from grpc_ps.client.shared.checkpoint import Checkpoint
from grpc_ps.client.shared.checkpoint_folder import CheckpointFolder
from grpc_ps.client.shared.checkpoint_format import Piece
from grpc_ps.client.shared.checkpoint_part import write_part
from grpc_ps.client.shared.errors import CheckpointError
from grpc_ps.client.shared.image import numpy_dtype, values_layout


@pytest.fixture
def folder(tmp_path):
    return CheckpointFolder(tmp_path)


def newest(folder: CheckpointFolder) -> Checkpoint:
    found = folder.newest(pytest.fail)
    assert found is not None
    return found


def test_a_folder_without_checkpoints_has_none(folder, tmp_path):
    assert folder.newest(pytest.fail) is None
    assert CheckpointFolder(tmp_path / "none").newest(pytest.fail) is None
    assert CheckpointFolder(tmp_path / "none").steps() == []


def test_a_commit_is_a_folder_with_parts_and_manifest(folder, tmp_path):
    path = write(folder)
    assert path == tmp_path / "step-00000040"
    names = ["manifest.json", *(f"shard-0000{shard}-of-00002.safetensors" for shard in range(2))]
    assert sorted(file.name for file in path.iterdir()) == names
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert newest(folder).manifest == replace(manifest(parts=newest(folder).manifest.parts))
    assert folder.has(40)
    assert not folder.has(41)


def test_the_newest_step_counts_not_the_last_written(folder):
    write(folder, 123456789)
    write(folder, 40)
    assert folder.steps() == [40, 123456789]
    assert newest(folder).step == 123456789


def read_all(checkpoint: Checkpoint, shards: int) -> None:
    """Reads what each of so many shards needs, and compares."""
    expected = state(checkpoint.manifest.parameters, checkpoint.step)
    with checkpoint.open() as reader:
        assert set(reader.dtypes) == {key for key, array in expected.items() if array.size}
        for blocks in place(checkpoint.manifest.parameters, shards).shards:
            for run in values_layout(blocks).blocks:
                for slot in ("", *reader.slots().get(run.parameter, ())):
                    out = np.empty(run.size, numpy_dtype(run.dtype))
                    reader.read(run.parameter, slot, run.start, run.stop, out)
                    assert out.tobytes() == expected[run.parameter, slot][run.start : run.stop].tobytes()


@pytest.mark.parametrize("shards", [1, 2, 3, 5])
def test_b76_values_and_slots_of_two_shards_are_read_by_any_number(folder, shards):
    write(folder)
    read_all(newest(folder), shards)


LARGE = (
    ParameterSpec(name="large", shape=(1000, 300), dtype="float32"),
    ParameterSpec(name="half", shape=(150, 1001), dtype="bfloat16"),
    ParameterSpec(name="flags", shape=(140_001,), dtype="bool", trainable=False),
)


@pytest.mark.parametrize("shards", [1, 3, 5])
def test_parameters_in_many_blocks_are_read_by_any_number(folder, shards):
    write(folder, specs=LARGE)
    read_all(newest(folder), shards)


shapes = st.lists(st.integers(0, 400), max_size=2).map(tuple)


@settings(deadline=None, max_examples=50)
@given(
    st.dictionaries(
        st.text("ab/[:]0é", min_size=1), st.tuples(shapes, st.sampled_from(sorted(ITEM_BYTES))), min_size=1
    ),
    *[st.integers(1, 4)] * 2,
)
def test_any_parameters_come_back_bit_by_bit(tmp_path_factory, parameters, writers, readers):
    specs = tuple(ParameterSpec(name=name, shape=shape, dtype=dtype) for name, (shape, dtype) in parameters.items())
    folder = CheckpointFolder(tmp_path_factory.mktemp("any"))
    write(folder, specs=specs, shards=writers)
    read_all(newest(folder), readers)


def test_parameters_are_read_whole_in_their_shapes(folder):
    write(folder)
    with newest(folder).open() as reader:
        for spec in SPECS:
            value = reader.value(spec.name)
            assert value.shape == spec.shape
            assert value.dtype == spec.dtype
            assert value.tobytes() == state()[spec.name, ""].tobytes()


def test_what_is_not_there_cannot_be_read(folder):
    write(folder)
    with newest(folder).open() as reader:
        with pytest.raises(CheckpointError, match=r"step-00000040: has not the elements 10 to 11 of dense/bias"):
            reader.read("dense/bias", "", 8, 11, np.zeros(3, np.uint16))
        with pytest.raises(CheckpointError, match=r"elements 0 to 1 of the slot z of mask"):
            reader.read("mask", "z", 0, 1, np.zeros(1, np.bool_))
        with pytest.raises(ValueError, match="in a row"):
            reader.read("dense/bias", "", 0, 2, np.zeros(4, np.uint16)[::2])


def test_an_interrupted_checkpoint_is_not_seen_and_removed_later(folder, tmp_path):
    for name in (".saving-00000050-aa", ".damaged-00000050-aa", ".removing-00000050-aa", ".saving-00000060-aa"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    write(folder)
    assert folder.prune(1, 40) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000040"]


def test_the_newest_are_kept_and_the_protected(folder):
    for step in (10, 20, 30, 40):
        write(folder, step)
    assert folder.prune(2, 40, protect=[10]) == [20]
    assert folder.steps() == [10, 30, 40]
    assert folder.prune(0, 40) == [30, 10]
    assert newest(folder).step == 40


def test_a_checkpoint_that_is_not_whole_does_not_count_as_kept(folder, tmp_path):
    for step in (10, 20, 30):
        write(folder, step)
    (tmp_path / "step-00000020" / "manifest.json").unlink()
    assert folder.prune(2, 30) == []
    write(folder, 40)
    assert folder.prune(2, 40) == [20, 10]


def test_damage_in_a_later_one_costs_no_good_one(folder, tmp_path):
    """The job went back past a checkpoint with a flipped bit, which has its length and yet is not whole."""

    def passing_over(folder: CheckpointFolder) -> int:
        found = folder.newest(skipped.append)
        assert found is not None
        return found.step

    skipped: list[str] = []
    for step in (40, 50):
        write(folder, step)
    part = tmp_path / "step-00000050" / "shard-00000-of-00002.safetensors"
    data = bytearray(part.read_bytes())
    data[-1] ^= 1
    part.write_bytes(data)
    assert passing_over(folder) == 40
    write(folder, 45)
    assert folder.prune(1, 45) == [40]
    assert passing_over(folder) == 45


def test_the_same_step_again_leaves_the_one_that_is_there(folder, tmp_path):
    path = write(folder)
    before = (path / "manifest.json").stat().st_ino
    assert write(folder, token="0b", change=lambda it: replace(it, cursor=18)) == path
    assert (path / "manifest.json").stat().st_ino == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_what_is_damaged_in_the_way_is_put_aside(folder, tmp_path, caplog):
    path = write(folder)
    (path / "shard-00001-of-00002.safetensors").unlink()
    with caplog.at_level(logging.WARNING):
        write(folder, token="0b")
    assert newest(folder).step == 40
    [aside] = tmp_path.glob(".damaged-00000040-*")
    assert f"checkpoint_put_aside folder={path} now={aside.name}" in caplog.text
    folder.prune(1, 40)
    assert not aside.exists()


def test_a_manifest_that_does_not_fit_its_parts_is_not_committed(folder, tmp_path):
    def other_sum(found):
        return replace(found, parts=(found.parts[0], replace(found.parts[1], sha256="0" * 64)))

    with pytest.raises(CheckpointError, match=r"shard-00001-of-00002.safetensors: is damaged"):
        write(folder, change=other_sum)
    with pytest.raises(CheckpointError, match=r"has not every element of dense/bias once"):
        write(folder, change=lambda it: replace(it, parts=(it.parts[0],) * 2))
    with pytest.raises(CheckpointError, match=r"has mask, which is no parameter of the model"):
        write(folder, change=lambda it: replace(it, parameters=(*SPECS[:3], SPECS[4])))
    assert folder.steps() == []
    folder.discard(".saving-00000040-0a")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ranges", [((0, 4), (2, 6)), ((0, 2), (4, 6)), ((1, 6),), ((0, 6), (0, 6)), ((0, 5),), ()])
def test_a_parameter_that_is_not_there_exactly_once_is_not_committed(folder, ranges):
    spec = ParameterSpec(name="p", shape=(2, 3), dtype="int32")
    names = [f"shard-{shard}.safetensors" for shard in range(len(ranges))]
    pieces = [Piece("p", "", start, stop, "int32") for start, stop in ranges]
    parts = tuple(
        write_part(folder.path / ".saving-1", name, [(piece, memoryview(bytes(piece.nbytes)))], {})
        for name, piece in zip(names, pieces, strict=True)
    )
    with pytest.raises(CheckpointError, match=r".saving-1: has not every element of p once"):
        folder.commit(".saving-1", manifest(1, parts=parts, specs=(spec,)))


def test_settings_that_json_cannot_carry_are_refused(folder):
    with pytest.raises(CheckpointError, match=r"manifest.json: cannot be written: Out of range float"):
        write(folder, change=lambda it: replace(it, learning_rate_factor=float("nan")))


def test_the_best_by_a_metric(folder):
    for step in (10, 20, 30, 40):
        write(folder, step)
    assert folder.best("accuracy", higher_is_better=True) is None
    for step, accuracy in ((10, 0.5), (20, 0.9), (30, 0.9), (40, float("nan"))):
        folder.note_evaluation(step, {"accuracy": accuracy, "loss": -accuracy}, step)
    assert folder.best("accuracy", higher_is_better=True) == 30
    assert folder.best("loss", higher_is_better=True) == 10
    assert folder.best("accuracy", higher_is_better=False) == 10
    assert folder.best("other", higher_is_better=True) is None
    assert newest(folder).step == 40
    (folder.step_path(30) / "evaluation.json").write_text("garbage")
    assert folder.best("accuracy", higher_is_better=True) == 20
    with pytest.raises(CheckpointError, match=r"step-00000050/evaluation.json: cannot be written: No such file"):
        folder.note_evaluation(50, {}, 50)
