"""psctl inspect and psctl export, and what `worker --init-from` makes of it."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import click
import ml_dtypes
import numpy as np
import pytest
from checkpoints import RUN, SPECS, state, write
from fake_programs import install_programs
from safetensors import deserialize

from grpc_ps.client.client import ClusterStatus, PSClient, Pulled
from grpc_ps.client.commands.group import run
from grpc_ps.client.commands.weights import write_weights
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.checkpoint_folder import CheckpointFolder
from grpc_ps.client.shared.errors import CheckpointError, DataError, UsageError
from grpc_ps.worker.initial import check_initial, open_initial

# What every case needs no more than.
MODEL = SPECS[:2]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "ckpt").mkdir()
    made = CheckpointFolder(tmp_path / "ckpt")
    write(made, 20)
    write(made, 40)
    return made


def inspect(capsys, path) -> dict:
    assert run(["inspect", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_inspect_shows_all_newest_first(folder, capsys):
    folder.note_evaluation(20, {"accuracy": 0.9}, 20)
    found = inspect(capsys, folder.path)
    assert found["directory"] == str(folder.path)
    newest, other = found["checkpoints"]
    assert [it["global_step"] for it in (newest, other)] == [40, 20]
    assert newest == {
        "path": str(folder.step_path(40)),
        "whole": True,
        "problems": [],
        "global_step": 40,
        "bytes": sum(file.stat().st_size for file in folder.step_path(40).glob("shard-*")),
        "shards": 2,
        "model": "mnist",
        "run": f"{RUN:016x}",
        "created": "2026-01-02T03:04:05+00:00",
        "settings": {"mode": "sync", "workers": 2, "learning_rate": 0.1, "nesterov": True},
        "learning_rate_factor": 0.5,
        "cursor": 17,
        "returned": [3, 5],
        "evaluation": {},
    }
    assert other["evaluation"] == {"accuracy": 0.9}


def test_inspect_of_one_checkpoint_shows_its_parameters(folder, capsys):
    found = inspect(capsys, folder.step_path(20))
    assert [it["global_step"] for it in found["checkpoints"]] == [20]
    assert found["parameters"][:3] == [
        {"name": "dense/kernel", "shape": [40, 10], "dtype": "float32", "trainable": True, "bytes": 1600}
        | {"slots": ["m", "v"]},
        {"name": "dense/bias", "shape": [10], "dtype": "bfloat16", "trainable": True, "bytes": 20, "slots": ["m", "v"]},
        {"name": "steps", "shape": [], "dtype": "int64", "trainable": False, "bytes": 8, "slots": []},
    ]


def test_inspect_for_people(folder, capsys):
    assert run(["inspect", str(folder.path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines if "whole" in line] == [["40", "whole"], ["20", "whole"]]
    assert run(["inspect", str(folder.step_path(40))]) == 0
    output = capsys.readouterr().out
    assert re.search(r"dense/kernel +\[40, 10\] +float32 +1,600 +m, v", output)
    assert "settings: learning_rate=0.1 mode=sync nesterov=True workers=2" in output


def test_inspect_says_what_is_damaged_and_fails_if_it_is_the_newest(folder, capsys):
    part = folder.step_path(20) / "shard-00001-of-00002.safetensors"
    part.unlink()
    found = inspect(capsys, folder.path)
    assert found["checkpoints"][1]["problems"] == [f"{part}: cannot be read: No such file or directory"]
    (folder.step_path(40) / "manifest.json").write_text("")
    text = f"{folder.step_path(40) / 'manifest.json'}: is empty"
    with pytest.raises(CheckpointError) as caught:
        run(["inspect", str(folder.path)])
    assert str(caught.value) == text
    assert caught.value.exit_code == 6
    output = capsys.readouterr().out
    assert f"{text}\n{part}: cannot" in output
    assert re.search(r"40 +damaged", output)
    with pytest.raises(CheckpointError, match="is empty"):
        run(["inspect", str(folder.step_path(40)), "--json"])
    assert json.loads(capsys.readouterr().out)["checkpoints"][0]["whole"] is False


@pytest.mark.parametrize("command", ["inspect DIR", "export w.npz --checkpoint DIR"])
def test_what_has_no_checkpoints_is_said_with_what_is_expected(tmp_path, monkeypatch, command):
    expected = "; expected the --checkpoint-dir of a job's shards, or a step-... in it"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for job in ("job-0001", "job-0002"):
        (tmp_path / "queue" / job).mkdir(parents=True)
    for name, says in {
        "none": f"there is no such folder{expected}",
        "step-00000040": f"there is no such folder{expected}",
        "empty": f"there is no checkpoint in it{expected}",
        "file": f"is a file{expected}",
        "queue": "has a folder for each job of a queue: name one of job-0001, job-0002",
    }.items():
        with pytest.raises(CheckpointError) as caught:
            run(command.replace("DIR", name).split())
        flag = "--checkpoint " if command.startswith("export") else ""
        assert (str(caught.value), caught.value.exit_code) == (f"{flag}{name}: {says}", 6)


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
@pytest.mark.parametrize("single", [False, True], ids=["newest", "step"])
def test_an_exported_checkpoint_is_what_init_from_reads(folder, tmp_path, capsys, suffix, single):
    file = tmp_path / f"w{suffix}"
    step = 20 if single else 40
    source = folder.step_path(20) if single else folder.path
    assert run(["export", str(file), "--checkpoint", str(source)]) == 0
    output = capsys.readouterr().out
    assert output == f"{file}: 5 parameters of global step {step}, {file.stat().st_size:,} bytes\n"
    # Numbers that are not finite are refused there, so what was saved at random is read as bytes.
    initial = open_initial(file)
    assert initial.check(SPECS) == []
    assert {name: tensor.shape for name, tensor in initial.tensors.items()} == {it.name: it.shape for it in SPECS}
    kernel = [spec for spec in SPECS if spec.dtype in ("int64", "bool")]
    check_initial(initial, [*kernel])
    for name, value in initial.load(kernel).items():
        assert value.tobytes() == state(step=step)[name, ""].tobytes()


@pytest.mark.parametrize("raw", [False, True])
def test_averages_are_exported_where_a_checkpoint_has_them(tmp_path, monkeypatch, capsys, raw):
    monkeypatch.setattr("checkpoints.SLOTS", ("average", "m"))
    folder = CheckpointFolder(tmp_path)
    write(folder)
    file = tmp_path / "w.safetensors"
    assert run(["export", str(file), "--checkpoint", str(tmp_path), *(["--raw"] if raw else [])]) == 0
    assert capsys.readouterr().out.startswith(f"{file}: {'' if raw else 'moving averages of '}5 parameters")
    written = {name: bytes(tensor["data"]) for name, tensor in deserialize(file.read_bytes())}
    arrays = state()
    for spec in SPECS:
        slot = "average" if spec.trainable and not raw else ""
        assert written[spec.name] == arrays[spec.name, slot].tobytes(), spec.name


def test_every_type_is_written_bit_by_bit(tmp_path):
    values = {
        "file": np.array([[1.5, -2.0]], np.float32),
        "a/b": np.array([1.5, 3.0], ml_dtypes.bfloat16),
        "scalar": np.array(7, np.int64),
        "none": np.empty((0, 3), np.float64),
        "turned": np.arange(6, dtype=np.int32).reshape(2, 3).T,
    }
    for suffix in (".safetensors", ".npz"):
        path = tmp_path / f"w{suffix}"
        assert write_weights(path, values, {"model": "mnist"}) == path.stat().st_size
    with np.load(tmp_path / "w.npz") as found:
        assert set(found.files) == set(values)
        for name, value in values.items():
            assert found[name].shape == value.shape
            assert found[name].dtype == ("float32" if name == "a/b" else value.dtype)
            assert np.array_equal(found[name], value.astype(found[name].dtype))
    specs = [ParameterSpec(name=name, shape=it.shape, dtype=it.dtype.name) for name, it in values.items()]
    for suffix in (".safetensors", ".npz"):
        initial = open_initial(tmp_path / f"w{suffix}")
        assert initial.check(specs) == []
        loaded = initial.load(specs)
        assert {name: it.tobytes() for name, it in loaded.items()} == {
            name: it.tobytes() for name, it in values.items()
        }
    for name, tensor in deserialize((tmp_path / "w.safetensors").read_bytes()):
        assert tuple(tensor["shape"]) == values[name].shape
        assert bytes(tensor["data"]) == values[name].tobytes()


def test_a_running_clusters_weights_are_exported(tmp_path, monkeypatch, capsys):
    values = {"w": np.arange(4, dtype=np.float32).reshape(2, 2)}
    status = object.__new__(ClusterStatus)
    object.__setattr__(status, "model", "mine")
    averages = {"w": values["w"] + 1}
    pulled = {False: Pulled(30, values), True: Pulled(30, averages, averages=True)}
    monkeypatch.setattr(PSClient, "pull", lambda self, *, averages, tables: pulled[averages])
    monkeypatch.setattr(PSClient, "status", lambda self: status)
    for flags, said, expected in (([], "moving averages of ", averages), (["--raw"], "", values)):
        assert run(["export", str(tmp_path / "w.npz"), "--ps", "127.0.0.1:1", "--force", *flags]) == 0
        assert f"w.npz: {said}1 parameters of global step 30" in capsys.readouterr().out
        with np.load(tmp_path / "w.npz") as found:
            assert np.array_equal(found["w"], expected["w"])


def test_export_refuses_before_it_reads(folder, tmp_path):
    source = ["--checkpoint", str(folder.path)]
    (tmp_path / "w.npz").write_text("mine")
    (tmp_path / "d.npz").mkdir()
    for arguments, text in {
        ("w.txt", *source): "w.txt: the name of a file of weights ends in .safetensors or .npz",
        ("none/w.npz", *source): "there is no folder",
        ("w.npz", *source): "w.npz: is there already; --force replaces it",
        ("d.npz", "--force", *source): "d.npz: is a folder",
        ("x.npz", "--model-arg", "a=1", *source): "--model-arg: is for models (.keras, DIR/), and",
        ("x.npz", "--ps", "h:1", *source): "--checkpoint: is for weights without a cluster",
    }.items():
        with pytest.raises(UsageError, match=re.escape(text)):
            run(["export", str(tmp_path / arguments[0]), *arguments[1:]])
    assert (tmp_path / "w.npz").read_text() == "mine"
    assert run(["export", str(tmp_path / "w.npz"), "--force", *source]) == 0
    assert open_initial(tmp_path / "w.npz").check(MODEL) != []


EXPORTING = """
import json, shutil, sys
from pathlib import Path
flags = sys.argv[1:]
shutil.copy(flags[flags.index("--weights") + 1], "given.safetensors")
Path("flags").write_text(json.dumps(flags))
print(json.dumps({"bytes": 1234}))
"""


@pytest.mark.parametrize(("name", "form"), [("m.keras", "keras"), ("served/", "saved-model"), ("x", "saved-model")])
def test_a_model_is_written_by_a_worker_that_gets_the_weights(folder, tmp_path, monkeypatch, capsys, name, form):
    install_programs(tmp_path, monkeypatch, worker=EXPORTING)
    chosen = ["--format", form] if name == "x" else []
    model = ["--model", "mine.py:build", "--model-arg", "a=1"]
    assert run(["export", name, "--checkpoint", str(folder.path), *model, *chosen]) == 0
    flags = json.loads(Path("flags").read_text())
    weights = flags.pop(flags.index("--weights") + 1)
    assert flags == ["export", name.rstrip("/"), *model, "--format", form, "--weights", "--json"]
    assert not Path(weights).exists()
    assert open_initial(Path("given.safetensors")).check(SPECS) == []
    assert capsys.readouterr().out == f"{name.rstrip('/')}: {len(SPECS)} parameters of global step 40, 1,234 bytes\n"


def test_one_of_our_models_need_not_be_named_for_export(folder, tmp_path, monkeypatch):
    install_programs(tmp_path, monkeypatch, worker=EXPORTING)
    assert run(["export", "served/", "--checkpoint", str(folder.path), "--force"]) == 0
    flags = json.loads(Path("flags").read_text())
    assert flags[flags.index("--model") + 1] == "mnist"
    assert "--force" in flags
    monkeypatch.setattr("grpc_ps.client.commands.export.OUR_MODELS", ("linear",))
    with pytest.raises(click.UsageError, match="--model: must be given, the job's model 'mnist' is none of linear"):
        run(["export", "other/", "--checkpoint", str(folder.path)])


def test_export_takes_the_newest_that_is_whole_and_says_so(folder, tmp_path, capsys):
    os.truncate(folder.step_path(40) / "shard-00000-of-00002.safetensors", 10)
    assert run(["export", str(tmp_path / "w.npz"), "--checkpoint", str(folder.path)]) == 0
    said = capsys.readouterr()
    assert "of global step 20" in said.out
    assert said.err.startswith(f"psctl: warning: {folder.step_path(40)}/shard-00000-of-00002.safetensors: has 10 bytes")
    with pytest.raises(CheckpointError, match="has 10 bytes, not"):
        run(["export", str(tmp_path / "x.npz"), "--checkpoint", str(folder.step_path(40))])
    shutil.rmtree(folder.step_path(20))
    with pytest.raises(CheckpointError, match="none of its checkpoints is whole"):
        run(["export", str(tmp_path / "x.npz"), "--checkpoint", str(folder.path)])
    with pytest.raises(CheckpointError, match="there is no checkpoint in it"):
        run(["export", str(tmp_path / "x.npz"), "--checkpoint", str(tmp_path)])
    assert not (tmp_path / "x.npz").exists()


def test_a_checkpoint_is_no_file_of_weights_and_the_worker_says_what_is(folder):
    step = folder.step_path(40)
    for path, source in (
        (folder.path, folder.path),
        (step, step),
        (step / "shard-00000-of-00002.safetensors", step),
    ):
        with pytest.raises(DataError) as caught:
            open_initial(path)
        export = f"psctl export FILE.safetensors --checkpoint {source}"
        assert str(caught.value) == f"{path}: is a checkpoint; make a file of its weights with: {export}"
